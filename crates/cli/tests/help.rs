//! The help is an interface: a change of it shows in review.

use std::process::Command;

/// Every command whose help is committed.
const COMMANDS: &[&str] = &[
    "",
    "spaces",
    "spaces create",
    "spaces ls",
    "spaces info",
    "spaces stop",
    "spaces start",
    "spaces delete",
    "cp",
    "exec",
    "image",
    "image build",
    "image rm",
    "doctor",
    "bench run",
    "bench run file-transfer",
    "bench run rollout",
];

#[test]
fn help_is_as_committed() {
    let mut text = String::new();
    for command in COMMANDS {
        let output = Command::new(env!("CARGO_BIN_EXE_airlock"))
            .args(command.split_ascii_whitespace())
            .arg("--help")
            // The width of a terminal must not matter.
            .env("COLUMNS", "100")
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}");
        assert!(output.stderr.is_empty(), "{command}");
        text.push_str(&format!("$ airlock {command} --help\n").replace("  ", " "));
        text.push_str(&String::from_utf8(output.stdout).unwrap());
        text.push('\n');
    }
    insta::assert_snapshot!(text);
}
