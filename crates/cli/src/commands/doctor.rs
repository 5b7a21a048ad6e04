//! `airlock doctor`.

use airlock::{Finding, Verdict};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::commands::{self, Context};
use crate::exit::{CommandError, Exit};
use crate::output;
use crate::progress::Progress;

/// What `--json` prints. Stable.
#[derive(Debug, Serialize)]
struct Report<'a> {
    /// Whether Spaces can be made here.
    healthy: bool,
    version: &'a str,
    findings: &'a [Finding],
}

/// Says what this host has. Ends with 4 when Spaces cannot be made.
pub(crate) async fn run(args: &DoctorArgs, context: &Context) -> Result<(), CommandError> {
    let airlock = commands::airlock()?;
    let report = {
        // The accelerator may have to be tried out.
        let bar = Progress::activity(context.out);
        bar.tick();
        bar.say("looking at this host");
        tokio::select! {
            report = airlock.doctor() => report,
            () = context.cancel.cancelled() => {
                return Err(CommandError::silent(Exit::Cancelled.code()));
            }
        }
    };
    let healthy = report.is_healthy();
    if args.json {
        output::json(&Report {
            healthy,
            version: env!("CARGO_PKG_VERSION"),
            findings: &report.findings,
        })?;
    } else {
        output::data(&text(&report.findings))?;
    }
    if healthy {
        return Ok(());
    }
    Err(
        CommandError::new(Exit::Unsupported, "Spaces cannot be made here yet")
            .hint("mend what is marked as missing, then run `airlock doctor` again"),
    )
}

fn text(findings: &[Finding]) -> String {
    let width = findings
        .iter()
        .map(|finding| finding.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let mark = match finding.verdict {
            Verdict::Ok => "ok     ",
            Verdict::Warning => "warning",
            Verdict::Missing => "missing",
        };
        let line = format!("{mark}  {:width$}  {}\n", finding.name, finding.detail);
        text.push_str(&line);
        if let Some(hint) = &finding.hint {
            for line in hint.lines() {
                let line = format!("         {:width$}  -> {line}\n", "");
                text.push_str(&line);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_stand_beneath_what_they_mend() {
        let findings = [
            Finding {
                name: "qemu",
                verdict: Verdict::Ok,
                detail: "7.2".into(),
                hint: None,
            },
            Finding {
                name: "network",
                verdict: Verdict::Missing,
                detail: "no passt".into(),
                hint: Some("sudo apt install passt".into()),
            },
        ];
        assert_eq!(
            text(&findings),
            "ok       qemu     7.2\n\
             missing  network  no passt\n\
             \x20                 -> sudo apt install passt\n"
        );
    }
}
