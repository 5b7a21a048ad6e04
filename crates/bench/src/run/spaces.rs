//! The Spaces that a run makes, and their end whatever happens.

use std::sync::{Mutex, PoisonError};

use airlock::{Airlock, CancellationToken, Error, ErrorKind, Space};
use airlock_model::{ImageName, Kind, SpaceName, SpaceSpec};

use super::{BenchError, Event};

/// Keeps the name of every Space of a run from before it is made until it is deleted, so that
/// none is forgotten, wherever its making ends.
#[derive(Debug)]
pub(crate) struct Spaces<'a> {
    airlock: &'a Airlock,
    names: Mutex<Vec<SpaceName>>,
}

impl<'a> Spaces<'a> {
    pub(crate) fn new(airlock: &'a Airlock) -> Self {
        Self {
            airlock,
            names: Mutex::default(),
        }
    }

    pub(crate) fn airlock(&self) -> &'a Airlock {
        self.airlock
    }

    /// A specification with the default resources under a name that is noted here.
    pub(crate) fn spec(&self, image: &ImageName, kind: Kind) -> Result<SpaceSpec, Error> {
        let mut names = self.names();
        let name = loop {
            let name = self.airlock.free_name()?;
            // Those that are about to be made have no folder yet.
            if !names.contains(&name) {
                break name;
            }
        };
        names.push(name.clone());
        Ok(SpaceSpec {
            kind,
            ..SpaceSpec::new(name, image.clone())
        })
    }

    /// Makes the Space of a noted specification, and says what happens.
    pub(crate) async fn make(
        &self,
        spec: SpaceSpec,
        events: &(impl Fn(Event) + Send + Sync),
        cancel: &CancellationToken,
    ) -> Result<Space, BenchError> {
        let name = spec.name.clone();
        let what = match spec.kind {
            Kind::Auto => format!("making the Space {name}"),
            kind @ (Kind::Vm | Kind::Container) => format!("making the Space {name} ({kind})"),
        };
        events(Event::Preparing(what));
        let narrate = |event: airlock::Event| match event {
            airlock::Event::Image(step) => events(image_event(&step)),
            airlock::Event::Booting => events(Event::Preparing("booting".to_owned())),
            airlock::Event::Note(text) => events(Event::Note(text)),
            airlock::Event::Ready { boot_ms } => {
                events(Event::Note(format!("{name} answered after {boot_ms} ms")));
            }
        };
        self.airlock
            .create(spec, narrate, cancel)
            .await
            .map_err(not_made)
    }

    /// Deletes one of them.
    pub(crate) async fn delete(&self, name: &SpaceName) -> Result<(), Error> {
        self.airlock.delete(name).await?;
        self.names().retain(|noted| noted != name);
        Ok(())
    }

    /// Deletes all that are left, and returns what stays behind and why. Nothing cancels this: it
    /// is what cancelling is for.
    pub(crate) async fn delete_all(&self, events: &(impl Fn(Event) + Send + Sync)) -> Vec<String> {
        let names: Vec<SpaceName> = self.names().drain(..).collect();
        let mut warnings = Vec::new();
        for name in names {
            events(Event::Preparing(format!("deleting the Space {name}")));
            if let Err(error) = self.airlock.delete(&name).await {
                warnings.push(format!("the Space {name} could not be deleted: {error}"));
            }
        }
        warnings
    }

    /// Deletes all that are left; those that cannot be deleted now stay noted.
    pub(crate) async fn try_delete_all(&self) {
        let names = self.names().clone();
        for name in names {
            // `delete_all` tries again at the end, and says what stays behind.
            let _ = self.delete(&name).await;
        }
    }

    fn names(&self) -> std::sync::MutexGuard<'_, Vec<SpaceName>> {
        // No list is half-changed when a thread panics.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a person reads while an image is built.
pub(crate) fn image_event(step: &airlock::image::Progress) -> Event {
    Event::Preparing(format!(
        "image {}: {} {}",
        step.image, step.phase, step.detail
    ))
}

/// Why there is no Space.
pub(crate) fn not_made(error: Error) -> BenchError {
    match error.kind() {
        ErrorKind::Cancelled => BenchError::Cancelled,
        _ => BenchError::sdk("make a Space")(error),
    }
}
