//! The entry point: the Spaces beneath one `AIRLOCK_HOME`.

use std::path::PathBuf;

use airlock_engine::doctor::DoctorReport;
use airlock_engine::image::{Catalog, ImageSource};
use airlock_engine::{Engine, EngineError, Event, SpaceInfo};
use airlock_model::{ImageName, SpaceName, SpaceSpec};
use tokio_util::sync::CancellationToken;

use crate::space::Space;
use crate::{Error, connect};

/// The Spaces beneath one `AIRLOCK_HOME`. Cheap to clone.
///
/// ```no_run
/// # async fn run() -> Result<(), airlock::Error> {
/// use airlock::{Airlock, CancellationToken, ImageName, SpaceSpec};
///
/// let airlock = Airlock::open()?;
/// let spec = SpaceSpec::new(airlock.free_name()?, ImageName::new("linux")?);
/// let space = airlock.create(spec, |event| eprintln!("{event:?}"), &CancellationToken::new()).await?;
/// let receipt = space.upload("data.bin", "/root/data.bin").run().await?;
/// println!("{} bytes by the {} route", receipt.bytes, receipt.route);
/// airlock.delete(space.name()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Airlock {
    engine: Engine,
}

impl Airlock {
    /// The Spaces beneath `$AIRLOCK_HOME`, or `~/.airlock` where that is not set.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            engine: Engine::open_default()?,
        })
    }

    /// The Spaces beneath `home`.
    pub fn open_at(home: impl Into<PathBuf>) -> Result<Self, Error> {
        Ok(Self {
            engine: Engine::open(home)?,
        })
    }

    /// Every setting's name and the value in force.
    pub fn list_settings(&self) -> Result<Vec<(&'static str, String)>, Error> {
        Ok(self.engine.list_settings().map_err(EngineError::from)?)
    }

    /// The value in force of the setting `key`.
    pub fn get_setting(&self, key: &str) -> Result<String, Error> {
        Ok(self.engine.get_setting(key).map_err(EngineError::from)?)
    }

    /// Changes the setting `key`.
    pub fn set_setting(&self, key: &str, value: &str) -> Result<(), Error> {
        Ok(self
            .engine
            .set_setting(key, value)
            .map_err(EngineError::from)?)
    }

    /// A name that no Space has.
    pub fn free_name(&self) -> Result<SpaceName, Error> {
        Ok(self.engine.free_name()?)
    }

    /// Makes an image of what `source` names, and gives its name; what was imported before is used
    /// again. An image of the catalog is given as it is.
    pub async fn import(
        &self,
        source: ImageSource,
        events: impl Fn(Event) + Send + Sync,
        cancel: &CancellationToken,
    ) -> Result<ImageName, Error> {
        Ok(self.engine.import(source, &events, cancel).await?)
    }

    /// Makes a Space, its image first if need be, and connects to it. On an error, or when
    /// `cancel` fires, nothing of the Space is left.
    pub async fn create(
        &self,
        spec: SpaceSpec,
        events: impl Fn(Event) + Send + Sync,
        cancel: &CancellationToken,
    ) -> Result<Space, Error> {
        let name = spec.name.clone();
        self.engine.create(spec, &events, cancel).await?;
        self.space(&name).await
    }

    /// Every Space, by name.
    pub fn list(&self) -> Result<Vec<SpaceInfo>, Error> {
        Ok(self.engine.list()?)
    }

    /// One Space, running or not.
    pub fn info(&self, name: &SpaceName) -> Result<SpaceInfo, Error> {
        Ok(self.engine.info(name)?)
    }

    /// Starts a Space that is not running.
    pub async fn start(
        &self,
        name: &SpaceName,
        events: impl Fn(Event) + Send + Sync,
        cancel: &CancellationToken,
    ) -> Result<SpaceInfo, Error> {
        Ok(self.engine.start(name, &events, cancel).await?)
    }

    /// Shuts a Space down, with `force` at once. Returns whether it was running.
    pub async fn stop(&self, name: &SpaceName, force: bool) -> Result<bool, Error> {
        Ok(self.engine.stop(name, force).await?)
    }

    /// Ends and removes a Space, whatever state it is in. Returns whether there was one.
    pub async fn delete(&self, name: &SpaceName) -> Result<bool, Error> {
        Ok(self.engine.delete(name).await?)
    }

    /// Connects to a running Space.
    pub async fn space(&self, name: &SpaceName) -> Result<Space, Error> {
        let connection = connect::connect(&self.engine, name).await?;
        Ok(Space::new(self.engine.clone(), name.clone(), connection))
    }

    /// The images.
    pub fn images(&self) -> Catalog {
        self.engine.catalog()
    }

    /// The Spaces made from the image `name`.
    pub fn spaces_of_image(&self, name: &airlock_model::ImageName) -> Vec<SpaceName> {
        let spaces = self.engine.list().unwrap_or_default();
        spaces
            .into_iter()
            .filter(|info| info.image == *name)
            .map(|info| info.name)
            .collect()
    }

    /// What this host has, what it lacks, and how to mend that.
    pub async fn doctor(&self) -> DoctorReport {
        self.engine.doctor().await
    }

    /// Where Airlock's files are.
    pub fn home(&self) -> &airlock_model::HomePaths {
        self.engine.home()
    }
}
