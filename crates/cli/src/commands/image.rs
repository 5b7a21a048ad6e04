//! `airlock image …`.

use airlock::image::{Freshness, ImageInfo};
use airlock::{Airlock, ImageName};
use serde::Serialize;

use crate::args::ImageCommand;
use crate::commands::build_talk::BuildTalk;
use crate::commands::{self, Context, each};
use crate::exit::{self, CommandError, Exit};
use crate::output::{self, human_bytes, table};

/// What `image rm --json` prints for each image. Stable.
#[derive(Debug, Serialize)]
struct Removed {
    name: ImageName,
    freed_bytes: u64,
}

/// Lists, builds or removes images.
pub(crate) async fn run(command: ImageCommand, context: &Context) -> Result<(), CommandError> {
    let airlock = commands::airlock()?;
    match command {
        ImageCommand::Ls { json } => {
            let images = blocking(move || Ok(airlock.images().ls()?)).await?;
            if json {
                return output::json(&images);
            }
            output::data(&list_table(&images))
        }
        ImageCommand::Build { name, cached, json } => {
            let info = build(airlock, name, cached, context).await?;
            if json {
                return output::json(&info);
            }
            context.out.note(&format!(
                "built {}, {}",
                info.name,
                human_bytes(info.disk_bytes)
            ));
            Ok(())
        }
        ImageCommand::Rm { names, json } => {
            each(names, context, async |name| {
                let (airlock, image) = (airlock.clone(), name.clone());
                let freed_bytes = blocking(move || {
                    let in_use = |image: &ImageName| airlock.spaces_of_image(image);
                    Ok(airlock.images().rm(&image, &in_use)?)
                })
                .await?;
                if json {
                    return output::json(&Removed { name, freed_bytes });
                }
                let freed = human_bytes(freed_bytes);
                context.out.note(&format!("removed {name}, {freed} freed"));
                Ok(())
            })
            .await
        }
    }
}

async fn build(
    airlock: Airlock,
    name: ImageName,
    cached: bool,
    context: &Context,
) -> Result<ImageInfo, CommandError> {
    let freshness = if cached {
        Freshness::Cached
    } else {
        Freshness::Newest
    };
    let cancel = context.cancel.clone();
    let talk = BuildTalk::new(context.out);
    blocking(move || {
        let images = airlock.images();
        images.build(&name, freshness, &|step| talk.step(&step), &cancel)?;
        let built = images.ls()?.into_iter().find(|info| info.name == name);
        let gone = || CommandError::new(Exit::Failure, "the image was removed as soon as built");
        built.ok_or_else(gone)
    })
    .await
}

fn list_table(images: &[ImageInfo]) -> String {
    let rows: Vec<[String; 5]> = images
        .iter()
        .map(|image| {
            let dash = || "-".to_owned();
            [
                image.name.to_string(),
                if image.built {
                    "built".to_owned()
                } else {
                    "not built".to_owned()
                },
                if image.built {
                    human_bytes(image.disk_bytes)
                } else {
                    dash()
                },
                image.kernel_version.clone().unwrap_or_else(dash),
                image.created_unix.and_then(time).unwrap_or_else(dash),
            ]
        })
        .collect();
    table::render(["NAME", "STATE", "SIZE", "KERNEL", "CREATED"], &rows)
}

fn time(unix_seconds: u64) -> Option<String> {
    let seconds = i64::try_from(unix_seconds).ok()?;
    jiff::Timestamp::from_second(seconds)
        .ok()
        .map(|time| time.to_string())
}

/// Runs what blocks on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CommandError> + Send + 'static,
) -> Result<T, CommandError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(CommandError::from_error(Exit::Failure, &error)))
}

impl From<airlock::image::ImageError> for CommandError {
    fn from(error: airlock::image::ImageError) -> Self {
        // Its own words, without "the image cannot be had" before them.
        let message = exit::chain(&error);
        let error = airlock::Error::from(error);
        Self::new(commands::exit_of(error.kind()), message).with_hints(error.hints())
    }
}
