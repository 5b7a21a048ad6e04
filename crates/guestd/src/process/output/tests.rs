use super::*;

const CAP: usize = 10 * (PIECE_COST + 100);

fn output() -> Arc<Output> {
    Arc::new(Output::new(CAP, false))
}

fn piece(byte: u8) -> Bytes {
    Bytes::from(vec![byte; 100])
}

async fn read_all(mut reader: Reader) -> Result<Vec<u8>, Fault> {
    let mut all = Vec::new();
    loop {
        match reader.next().await? {
            Event::Data(piece) => all.extend_from_slice(&piece.bytes),
            Event::End(_) => return Ok(all),
        }
    }
}

#[tokio::test]
async fn a_slow_stream_makes_the_command_wait_and_loses_nothing() {
    let output = output();
    let mut reader = output.attach(0);
    let writer = Arc::clone(&output);
    let writing = tokio::spawn(async move {
        for i in 0..100 {
            writer.push(Source::Stdout, piece(i)).await;
        }
        writer.finish(ProcessEnd::default());
    });
    // On one thread the writer has gone as far as it can once it gives way.
    tokio::task::yield_now().await;
    assert_eq!(output.extent().end_offset, 1000);
    let Event::Data(first) = reader.next().await.unwrap() else {
        panic!()
    };
    assert_eq!((first.offset, first.bytes), (0, piece(0)));
    let rest = read_all(reader).await.unwrap();
    let expected: Vec<u8> = (1..100).flat_map(piece).collect();
    assert_eq!(rest, expected);
    writing.await.unwrap();
}

#[tokio::test]
async fn a_second_stream_starts_inside_a_piece() {
    let output = output();
    output.push(Source::Stdout, piece(1)).await;
    output.push(Source::Stderr, piece(2)).await;
    let mut reader = output.attach(130);
    let Event::Data(first) = reader.next().await.unwrap() else {
        panic!()
    };
    assert_eq!(
        (first.offset, first.source, first.bytes.len()),
        (130, Source::Stderr, 70)
    );
    output.finish(ProcessEnd::default());
    assert!(matches!(reader.next().await, Ok(Event::End(_))));
}

#[tokio::test(start_paused = true)]
async fn of_two_streams_the_frozen_one_is_cut_off_and_told() {
    let output = output();
    let mut frozen = output.attach(0);
    let running = tokio::spawn(read_all(output.attach(0)));
    for i in 0..20 {
        output.push(Source::Stdout, piece(i)).await;
    }
    output.finish(ProcessEnd::default());
    assert_eq!(running.await.unwrap().unwrap().len(), 2000);
    let fault = frozen.next().await.unwrap_err();
    assert!(fault.message.contains("it misses"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_stream_finds_everything_on_its_return() {
    let output = output();
    let mut reader = output.attach(0);
    output.push(Source::Stdout, piece(0)).await;
    reader.next().await.unwrap();
    drop(reader);
    let writer = Arc::clone(&output);
    let writing = tokio::spawn(async move {
        for i in 1..30 {
            writer.push(Source::Stdout, piece(i)).await;
        }
        writer.finish(ProcessEnd::default());
    });
    tokio::time::sleep(REATTACH / 2).await;
    assert!(!writing.is_finished());
    let rest = read_all(output.attach(100)).await.unwrap();
    assert_eq!(rest.len(), 2900);
    writing.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn output_that_nobody_wants_gives_way_to_newer() {
    let output = output();
    drop(output.attach(0));
    for i in 0..50 {
        output.push(Source::Stdout, piece(i)).await;
    }
    output.finish(ProcessEnd::default());
    let extent = output.extent();
    assert_eq!((extent.start_offset, extent.end_offset), (4000, 5000));
    assert_eq!(read_all(output.attach(0)).await.unwrap().len(), 1000);
    output.trim(0);
    assert_eq!(output.extent().start_offset, 5000);
}

#[tokio::test]
async fn many_small_pieces_count_for_more_than_their_bytes() {
    let output = output();
    for _ in 0..10_000 {
        output.push(Source::Stdout, Bytes::from_static(b"x")).await;
    }
    assert!(output.extent().end_offset - output.extent().start_offset < 20);
}
