//! What a person hears while an image is built.

use std::sync::{Mutex, PoisonError};

use airlock::image::{Phase, Progress as Step};

use crate::output::Output;
use crate::progress::Progress;

/// A line that changes on a terminal, one line for each phase elsewhere.
#[derive(Debug)]
pub(crate) struct BuildTalk {
    out: Output,
    bar: Progress,
    last: Mutex<Option<Phase>>,
}

impl BuildTalk {
    pub(crate) fn new(out: Output) -> Self {
        let bar = Progress::activity(out);
        bar.tick();
        Self {
            out,
            bar,
            last: Mutex::new(None),
        }
    }

    /// Tells one step of the build.
    pub(crate) fn step(&self, step: &Step) {
        if self.out.shows_progress() {
            return self.bar.say(describe(step));
        }
        // A poisoned lock holds a phase that is as good as before.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != Some(step.phase) {
            *last = Some(step.phase);
            self.out
                .note(&format!("image {}: {}", step.image, step.phase));
        }
    }

    /// Says what else is going on.
    pub(crate) fn activity(&self, text: &str) {
        self.bar.say(text);
    }

    /// Says something that stays.
    pub(crate) fn note(&self, text: &str) {
        self.bar.suspend(|| self.out.note(text));
    }
}

fn describe(step: &Step) -> String {
    let percent = step.fraction.map_or_else(String::new, |fraction| {
        format!(" {:.0} %", fraction * 100.0)
    });
    let text = format!(
        "image {}: {}{percent} {}",
        step.image, step.phase, step.detail
    );
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use airlock::ImageName;

    use super::*;

    #[test]
    fn a_step_is_described_as_far_as_it_is_known() {
        let mut step = Step {
            image: ImageName::new("tiny").unwrap(),
            phase: Phase::Fetching,
            fraction: Some(0.5),
            detail: "busybox-static".into(),
        };
        assert_eq!(describe(&step), "image tiny: fetching 50 % busybox-static");
        step.fraction = None;
        step.detail.clear();
        assert_eq!(describe(&step), "image tiny: fetching");
    }
}
