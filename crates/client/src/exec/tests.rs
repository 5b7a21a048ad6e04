use super::*;
use crate::ErrorKind;

/// The other end takes everything and says nothing, as a stopped daemon does.
#[tokio::test(start_paused = true)]
async fn a_silent_space_does_not_hold_its_caller_for_ever() {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let connection = Connection::over(ours, "token").await.unwrap();
    let exec = Exec::new(connection, "true".to_owned());
    let error = tokio::time::timeout(STALL_TIMEOUT * 2, exec.stream())
        .await
        .expect("it gives up")
        .err()
        .expect("nothing answers");
    assert_eq!(error.kind(), ErrorKind::NoAnswer, "{error:?}");
    drop(theirs);
}
