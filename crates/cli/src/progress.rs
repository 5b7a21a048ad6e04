//! A bar with bytes, rate and time left, for anything over a second, on a terminal only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;

/// What takes less is over before anybody could read the bar.
const DELAY: Duration = Duration::from_secs(1);
/// Draws a second; a terminal over a slow line is not flooded.
const DRAW_HZ: u8 = 10;

/// The bar of one thing that takes time. Gone from the screen when dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    shown: bool,
}

impl Progress {
    /// Bytes that are being moved; `total_bytes` where that is known.
    pub(crate) fn bytes(out: Output, total_bytes: Option<u64>) -> Self {
        let progress = Self::hidden(out, total_bytes);
        progress.bar.set_style(bytes_style(total_bytes.is_some()));
        progress
    }

    /// A line that says what is going on.
    pub(crate) fn activity(out: Output) -> Self {
        let progress = Self::hidden(out, None);
        progress
            .bar
            .set_style(style("{spinner} {elapsed} {wide_msg}"));
        progress
    }

    /// Steps that are being done.
    pub(crate) fn steps(out: Output, total: u64) -> Self {
        let progress = Self::hidden(out, Some(total));
        progress
            .bar
            .set_style(style("{elapsed} {bar:24} {pos}/{len} {wide_msg}"));
        progress
    }

    fn hidden(out: Output, total: Option<u64>) -> Self {
        let shown = out.shows_progress();
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        Self { bar, shown }
    }

    /// How far it is.
    pub(crate) fn set(&self, position: u64, total: Option<u64>) {
        if let Some(total) = total
            && self.bar.length() != Some(total)
        {
            if self.bar.length().is_none() {
                self.bar.set_style(bytes_style(true));
            }
            self.bar.set_length(total);
        }
        self.bar.set_position(position);
        self.show_when_due();
    }

    /// What is going on.
    pub(crate) fn say(&self, message: impl Into<String>) {
        self.bar.set_message(message.into());
        self.show_when_due();
    }

    /// Runs `talk` with the bar off the screen, so that lines do not mix.
    pub(crate) fn suspend(&self, talk: impl FnOnce()) {
        self.bar.suspend(talk);
    }

    /// Draws by itself from now on, for work that reports rarely.
    pub(crate) fn tick(&self) {
        if self.shown {
            self.bar.enable_steady_tick(Duration::from_millis(200));
        }
    }

    fn show_when_due(&self) {
        if self.shown && self.bar.is_hidden() && self.bar.elapsed() >= DELAY {
            self.bar
                .set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAW_HZ));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn bytes_style(total_known: bool) -> ProgressStyle {
    style(if total_known {
        "{binary_bytes} of {binary_total_bytes} {wide_bar} {binary_bytes_per_sec}, {eta} left"
    } else {
        "{spinner} {binary_bytes} {binary_bytes_per_sec} {elapsed}"
    })
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants of this file, and a test renders each; plain is better than none.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Talk;

    #[test]
    fn every_template_is_valid() {
        for template in [
            "{spinner} {elapsed} {wide_msg}",
            "{elapsed} {bar:24} {pos}/{len} {wide_msg}",
            "{binary_bytes} of {binary_total_bytes} {wide_bar} {binary_bytes_per_sec}, {eta} left",
            "{spinner} {binary_bytes} {binary_bytes_per_sec} {elapsed}",
        ] {
            ProgressStyle::with_template(template).unwrap();
        }
    }

    #[test]
    fn nothing_is_drawn_when_quiet() {
        let progress = Progress::bytes(Output::new(Talk::Quiet), None);
        progress.set(5, Some(10));
        assert!(progress.bar.is_hidden());
        assert_eq!(progress.bar.length(), Some(10));
    }
}
