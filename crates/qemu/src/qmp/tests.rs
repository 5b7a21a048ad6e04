use tokio::io::{AsyncBufReadExt, AsyncReadExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::*;

const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "x"}, "capabilities": ["oob"]}}"#;

/// The other end of a connection, driven by the test line by line.
struct Peer {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Peer {
    fn pair() -> (UnixStream, Self) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (reader, writer) = theirs.into_split();
        (
            ours,
            Self {
                reader: BufReader::new(reader),
                writer,
            },
        )
    }

    async fn say(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).await.unwrap();
        self.writer.write_all(b"\n").await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn answer(&mut self, command: &str, value: Value) {
        let heard = self.hear().await;
        assert_eq!(heard["execute"], command);
        self.say(&json!({ "return": value, "id": heard["id"] }).to_string())
            .await;
    }

    async fn connected() -> (Qmp, Self) {
        let (socket, mut peer) = Self::pair();
        let (qmp, ()) = tokio::join!(Qmp::connect(socket), async {
            peer.say(GREETING).await;
            peer.answer("qmp_capabilities", json!({})).await;
        });
        (qmp.unwrap(), peer)
    }
}

#[tokio::test]
async fn negotiates_executes_and_reports_the_version() {
    let (qmp, mut peer) = Peer::connected().await;
    assert_eq!(qmp.version().to_string(), "7.2.22");
    let (status, ()) = tokio::join!(
        qmp.query_status(),
        peer.answer(
            "query-status",
            json!({"status": "paused", "running": false})
        )
    );
    assert_eq!(
        status.unwrap(),
        RunState {
            status: "paused".into(),
            running: false
        }
    );
}

#[tokio::test]
async fn answers_may_come_in_any_order_with_events_between() {
    let (qmp, mut peer) = Peer::connected().await;
    let mut events = qmp.events();
    let (first, second, ()) = tokio::join!(qmp.execute("a", None), qmp.execute("b", None), async {
        let (a, b) = (peer.hear().await, peer.hear().await);
        peer.say(r#"{"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 2}}"#)
            .await;
        for heard in [b, a] {
            peer.say(&json!({"return": heard["execute"], "id": heard["id"]}).to_string())
                .await;
        }
    });
    assert_eq!(first.unwrap(), "a");
    assert_eq!(second.unwrap(), "b");
    assert_eq!(
        events.recv().await.unwrap(),
        Event {
            name: "STOP".into(),
            data: Value::Null
        }
    );
}

#[tokio::test]
async fn a_refusal_keeps_the_connection() {
    let (qmp, mut peer) = Peer::connected().await;
    let (refused, ()) = tokio::join!(qmp.execute("x", Some(json!({"k": 1}))), async {
        let heard = peer.hear().await;
        assert_eq!(heard["arguments"], json!({"k": 1}));
        let error = json!({"class": "CommandNotFound", "desc": "no x"});
        peer.say(&json!({"error": error, "id": heard["id"]}).to_string())
            .await;
    });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "QEMU refused x: no x (CommandNotFound)"
    );
    let (ok, ()) = tokio::join!(qmp.cont(), peer.answer("cont", json!({})));
    ok.unwrap();
}

#[tokio::test]
async fn malformed_lines_end_the_connection_with_an_error() {
    let bad = [
        "no json",
        "{}",
        "[]",
        "null",
        r#"{"return": {}, "id": "text"}"#,
        "\u{0}",
        GREETING,
    ];
    for line in bad {
        let (qmp, mut peer) = Peer::connected().await;
        let (result, ()) = tokio::join!(qmp.stop(), async {
            peer.hear().await;
            peer.say(line).await;
        });
        assert!(
            matches!(result, Err(QmpError::Malformed { .. })),
            "{line:?}: {result:?}"
        );
        assert!(
            matches!(qmp.stop().await, Err(QmpError::Malformed { .. })),
            "{line:?}"
        );
    }
}

#[tokio::test]
async fn a_huge_line_ends_the_connection() {
    let (qmp, mut peer) = Peer::connected().await;
    let flood = tokio::spawn(async move {
        let piece = vec![b'x'; 64 * 1024];
        while peer.writer.write_all(&piece).await.is_ok() {}
    });
    assert!(matches!(qmp.stop().await, Err(QmpError::LineTooLong)));
    drop(qmp);
    flood.await.unwrap();
}

#[tokio::test]
async fn the_end_of_the_peer_wakes_every_caller() {
    let (qmp, peer) = Peer::connected().await;
    let mut events = qmp.events();
    let (a, b, ()) = tokio::join!(qmp.stop(), qmp.cont(), async { drop(peer) });
    assert!(matches!(a, Err(QmpError::Closed)), "{a:?}");
    assert!(matches!(b, Err(QmpError::Closed)), "{b:?}");
    assert!(matches!(qmp.ended(), Some(QmpError::Closed)));
    assert!(events.recv().await.is_err());
    assert!(qmp.events().recv().await.is_err());
    qmp.quit().await.unwrap();
}

#[tokio::test]
async fn silence_is_a_timeout_and_a_late_answer_is_ignored() {
    let (qmp, mut peer) = Peer::connected().await;
    let short = Duration::from_millis(20);
    let late = qmp.execute_within("slow", None, short).await;
    assert!(matches!(late, Err(QmpError::Timeout { .. })), "{late:?}");
    let heard = peer.hear().await;
    peer.say(&json!({"return": "late", "id": heard["id"]}).to_string())
        .await;
    let (next, ()) = tokio::join!(
        qmp.execute("next", None),
        peer.answer("next", json!("next"))
    );
    assert_eq!(next.unwrap(), "next");
}

#[tokio::test]
async fn a_greeting_must_come_first_and_in_time() {
    let (socket, mut peer) = Peer::pair();
    peer.say(r#"{"return": {}}"#).await;
    assert!(matches!(
        Qmp::connect(socket).await,
        Err(QmpError::Malformed { .. })
    ));

    let (socket, _silent) = Peer::pair();
    let short = Duration::from_millis(20);
    let result = Qmp::connect_within(socket, short).await;
    assert!(matches!(result, Err(QmpError::Timeout { .. })));

    let (socket, gone) = Peer::pair();
    drop(gone);
    assert!(matches!(Qmp::connect(socket).await, Err(QmpError::Closed)));
}

#[tokio::test]
async fn dropping_the_client_closes_the_socket() {
    let (qmp, mut peer) = Peer::connected().await;
    drop(qmp);
    let mut rest = Vec::new();
    assert_eq!(peer.reader.read_to_end(&mut rest).await.unwrap(), 0);
}
