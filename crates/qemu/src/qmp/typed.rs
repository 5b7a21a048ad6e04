//! The few commands that Airlock gives, with their answers understood.

use serde_json::{Value, json};

use super::{Qmp, QmpError, excerpt};
use crate::argv::CONTROL_NETDEV;

/// What a machine does right now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunState {
    /// QEMU's word for it, such as `running`, `paused`, `shutdown`, `guest-panicked`.
    pub status: String,
    /// Whether its CPUs run.
    pub running: bool,
}

impl Qmp {
    /// What the machine does right now.
    pub async fn query_status(&self) -> Result<RunState, QmpError> {
        let command = "query-status";
        let answer = self.execute(command, None).await?;
        match (answer["status"].as_str(), answer["running"].as_bool()) {
            (Some(status), Some(running)) => Ok(RunState {
                status: status.to_owned(),
                running,
            }),
            (None, _) | (_, None) => Err(unexpected(command, &answer)),
        }
    }

    /// Lets the CPUs run.
    pub async fn cont(&self) -> Result<(), QmpError> {
        self.execute("cont", None).await.map(drop)
    }

    /// Halts the CPUs.
    pub async fn stop(&self) -> Result<(), QmpError> {
        self.execute("stop", None).await.map(drop)
    }

    /// Presses the power button. The guest may ignore it.
    pub async fn system_powerdown(&self) -> Result<(), QmpError> {
        self.execute("system_powerdown", None).await.map(drop)
    }

    /// Ends QEMU. A connection that closes instead of answering is success: QEMU is gone.
    pub async fn quit(&self) -> Result<(), QmpError> {
        match self.execute("quit", None).await {
            Ok(_) | Err(QmpError::Closed) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// The port on the host's 127.0.0.1 that leads to the guest's control port.
    ///
    /// QEMU was told port 0, so the kernel chose; QMP has no command that tells, the human
    /// monitor has.
    pub async fn info_usernet_port(&self) -> Result<u16, QmpError> {
        let command = "human-monitor-command";
        let arguments = json!({ "command-line": "info usernet" });
        let answer = self.execute(command, Some(arguments)).await?;
        answer
            .as_str()
            .and_then(|text| forwarded_port(text, CONTROL_NETDEV))
            .ok_or_else(|| unexpected(command, &answer))
    }
}

fn unexpected(command: &str, answer: &Value) -> QmpError {
    QmpError::Unexpected {
        command: command.to_owned(),
        answer: excerpt(answer.to_string().as_bytes()),
    }
}

/// Finds the listening TCP port of `netdev` in the text of `info usernet`:
///
/// ```text
/// Hub -1 (control):
///   Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ
///   TCP[HOST_FORWARD]  22       127.0.0.1 45147  169.254.193.15  3211     0     0
/// ```
fn forwarded_port(text: &str, netdev: &str) -> Option<u16> {
    let mut here = false;
    for line in text.lines() {
        if !line.starts_with(' ') {
            here = line.contains(&format!("({netdev})")) || line.starts_with(&format!("{netdev}:"));
        } else if here {
            let mut fields = line.split_ascii_whitespace();
            if fields.next() == Some("TCP[HOST_FORWARD]") {
                return fields.nth(2)?.parse().ok().filter(|port| *port != 0);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\n";

    #[test]
    fn finds_the_port_of_the_right_network() {
        let text = format!(
            "Hub -1 (other):\n{HEAD}  TCP[HOST_FORWARD]  21 127.0.0.1 1111 10.0.2.15 22 0 0\n\
             Hub -1 (control):\n{HEAD}  TCP[ESTABLISHED]  30 127.0.0.1 5 169.254.193.15 3211 0 0\n\
             \x20 TCP[HOST_FORWARD]  22       127.0.0.1 45147  169.254.193.15  3211     0     0\n"
        );
        assert_eq!(forwarded_port(&text, "control"), Some(45147));
        assert_eq!(forwarded_port(&text, "third"), None);
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        for line in [
            "  TCP[HOST_FORWARD]  22",
            "  TCP[HOST_FORWARD] 22 127.0.0.1 0 x 1 0 0",
            "",
            "x",
        ] {
            assert_eq!(
                forwarded_port(&format!("Hub -1 (control):\n{line}"), "control"),
                None
            );
        }
    }
}
