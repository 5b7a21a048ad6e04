//! What `rollout` drives: a trait, and real Spaces behind it.

use airlock::{CancellationToken, Space};
use airlock_model::{ImageName, Kind, SpaceSpec};
use tokio::task::JoinSet;

use crate::result::SpaceFacts;
use crate::run::Event;
use crate::run::spaces::{Spaces, image_event};
use crate::target::{TargetError, exec};

/// Something that makes Spaces.
///
/// The seam for tests of the order and of failures; a real run drives a [`SpaceFleet`].
pub(super) trait Fleet: Send + Sync {
    /// One that runs, or can be started again.
    type Space: Send + Sync;

    /// Makes one and waits until it has run `true`.
    fn create(&self, kind: Kind) -> impl Future<Output = Result<Self::Space, TargetError>> + Send;
    /// Makes several at once and waits until each has run `true`.
    fn create_together(
        &self,
        kind: Kind,
        count: u32,
    ) -> impl Future<Output = Result<Vec<Self::Space>, TargetError>> + Send;
    /// What one is.
    fn facts(&self, space: &Self::Space) -> Result<SpaceFacts, TargetError>;
    /// Stops one in good order.
    fn stop(&self, space: &Self::Space) -> impl Future<Output = Result<(), TargetError>> + Send;
    /// Starts one that was stopped and waits until it has run `true`.
    fn start(&self, space: &Self::Space) -> impl Future<Output = Result<(), TargetError>> + Send;
    /// Deletes one.
    fn delete(&self, space: Self::Space) -> impl Future<Output = Result<(), TargetError>> + Send;
    /// Deletes all that are left of a batch that failed, as far as it goes.
    fn clear(&self) -> impl Future<Output = ()> + Send;
}

/// Real Spaces of one image.
pub(super) struct SpaceFleet<'a, E> {
    spaces: &'a Spaces<'a>,
    image: &'a ImageName,
    events: &'a E,
    cancel: &'a CancellationToken,
}

impl<'a, E: Fn(Event) + Send + Sync> SpaceFleet<'a, E> {
    /// Tells `events` only what makes a person wait: how the image is built.
    pub(super) fn new(
        spaces: &'a Spaces<'a>,
        image: &'a ImageName,
        events: &'a E,
        cancel: &'a CancellationToken,
    ) -> Self {
        Self {
            spaces,
            image,
            events,
            cancel,
        }
    }

    fn spec(&self, kind: Kind) -> Result<SpaceSpec, TargetError> {
        Ok(self.spaces.spec(self.image, kind)?)
    }

    fn narrate(&self, event: airlock::Event) {
        match event {
            airlock::Event::Image(step) => (self.events)(image_event(&step)),
            airlock::Event::Booting | airlock::Event::Note(_) | airlock::Event::Ready { .. } => {}
        }
    }
}

impl<E: Fn(Event) + Send + Sync> Fleet for SpaceFleet<'_, E> {
    type Space = Space;

    async fn create(&self, kind: Kind) -> Result<Space, TargetError> {
        let spec = self.spec(kind)?;
        let space = self
            .spaces
            .airlock()
            .create(spec, |event| self.narrate(event), self.cancel)
            .await?;
        exec(&space, "true", &[]).await?;
        Ok(space)
    }

    async fn create_together(&self, kind: Kind, count: u32) -> Result<Vec<Space>, TargetError> {
        let mut creating = JoinSet::new();
        for _ in 0..count {
            let (airlock, spec) = (self.spaces.airlock().clone(), self.spec(kind)?);
            let cancel = self.cancel.clone();
            creating.spawn(async move {
                let space = airlock.create(spec, |_| {}, &cancel).await?;
                exec(&space, "true", &[]).await?;
                Ok::<_, TargetError>(space)
            });
        }
        // All are waited for, also after one failed: none is to be made behind the deletion's back.
        creating.join_all().await.into_iter().collect()
    }

    fn facts(&self, space: &Space) -> Result<SpaceFacts, TargetError> {
        let info = self.spaces.airlock().info(space.name())?;
        Ok(SpaceFacts::of(&info, true))
    }

    async fn stop(&self, space: &Space) -> Result<(), TargetError> {
        self.spaces.airlock().stop(space.name(), false).await?;
        Ok(())
    }

    async fn start(&self, space: &Space) -> Result<(), TargetError> {
        let airlock = self.spaces.airlock();
        airlock.start(space.name(), |_| {}, self.cancel).await?;
        // The connection of before ended with the machine.
        exec(&airlock.space(space.name()).await?, "true", &[]).await
    }

    async fn delete(&self, space: Space) -> Result<(), TargetError> {
        Ok(self.spaces.delete(space.name()).await?)
    }

    async fn clear(&self) {
        self.spaces.try_delete_all().await;
    }
}
