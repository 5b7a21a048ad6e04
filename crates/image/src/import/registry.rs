//! Images from registries, by the OCI distribution protocol.
//!
//! Nothing a registry says is believed: the manifest, its configuration and every layer must have
//! the digest by which they were asked for. Plain HTTP is spoken with registries on this machine
//! alone. Blobs are kept under `cache/oci`, so what was fetched once is not fetched again, and a
//! download that broke off goes on where it stopped.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use fs_err as fs;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use tokio_util::sync::CancellationToken;

use crate::host::Arch;
use crate::import::registry::blob::Fetch;
use crate::import::registry::spec::{Config, Descriptor, Index, Manifest};
use crate::import::{FORMAT, ImportError, Imported, LayerPiece, Origin, SourceError};
use crate::manifest::sha256_of;
use crate::part::unix_now;

mod blob;
mod spec;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a registry may say nothing.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Manifests and configurations are small texts that are held in memory.
const TEXT_BYTES: u64 = 4 << 20;

/// What a registry may give for a name.
const MANIFEST_KINDS: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// What was fetched: the description, and the layers' files by their SHA-256.
pub(crate) struct Pulled {
    pub(crate) imported: Imported,
    pub(crate) files: BTreeMap<String, PathBuf>,
}

/// Reads a reference as the registry will see it, with the parts that a person left out.
pub(crate) fn whole_reference(text: &str) -> Result<Reference, SourceError> {
    Reference::from_str(text).map_err(|source| SourceError::Reference {
        text: text.to_owned(),
        source,
    })
}

/// How a pull tells how far it is: what it fetches, and how much of all there is to fetch.
pub(crate) type OnFetch<'a> = dyn Fn(&str, Option<f32>) + 'a;

/// Fetches the image for this host's platform into `cache/oci`.
pub(crate) fn pull(
    cache: &Path,
    reference: &Reference,
    on_fetch: &OnFetch<'_>,
    cancel: &CancellationToken,
) -> Result<Pulled, ImportError> {
    let folder = cache.join("oci");
    fs::create_dir_all(&folder)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let client = client(reference)?;
    let puller = Puller {
        client: &client,
        reference,
        folder: &folder,
        on_fetch,
    };
    runtime.block_on(async {
        tokio::select! {
            () = cancel.cancelled() => Err(ImportError::Cancelled),
            outcome = puller.pull(cancel) => outcome,
        }
    })
}

fn client(reference: &Reference) -> Result<Client, ImportError> {
    // The TLS library leaves the choice of its cryptography to the program; another part of the
    // program may have made it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let registry = reference.resolve_registry();
    let protocol = if is_loopback(registry) {
        ClientProtocol::HttpsExcept(vec![registry.to_owned()])
    } else {
        ClientProtocol::Https
    };
    let config = ClientConfig {
        protocol,
        connect_timeout: Some(CONNECT_TIMEOUT),
        read_timeout: Some(READ_TIMEOUT),
        user_agent: concat!("airlock/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    };
    Client::try_from(config).map_err(|source| registry_error(reference, source))
}

/// Whether a registry, with its port, is on this machine.
fn is_loopback(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => registry,
    };
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn registry_error(reference: &Reference, source: OciDistributionError) -> ImportError {
    ImportError::Registry {
        reference: reference.to_string(),
        source: Box::new(source),
    }
}

struct Puller<'a> {
    client: &'a Client,
    reference: &'a Reference,
    folder: &'a Path,
    on_fetch: &'a OnFetch<'a>,
}

impl Puller<'_> {
    async fn pull(&self, cancel: &CancellationToken) -> Result<Pulled, ImportError> {
        (self.on_fetch)(&self.reference.to_string(), None);
        let (content, manifest) = self.manifest().await?;
        if manifest.config.size > TEXT_BYTES {
            return Err(self.not_an_image("its configuration is too long"));
        }
        let file = self.fetch(&|_| {}, cancel).blob(&manifest.config).await?;
        let config: Config = self.parse(&fs::read(file)?, "configuration")?;
        self.check_platform(&config)?;
        let diffs = &config.rootfs.diff_ids;
        if diffs.len() != manifest.layers.len() {
            return Err(self.not_an_image("its layers and their digests differ in number"));
        }
        for layer in &manifest.layers {
            if !layer.is_layer() {
                let problem = format!("a layer is of the type {}", layer.media_type);
                return Err(self.not_an_image(&problem));
            }
        }
        let all: u64 = manifest
            .layers
            .iter()
            .fold(0, |sum, layer| sum.saturating_add(layer.size));
        let mut done: u64 = 0;
        let mut files = BTreeMap::new();
        let mut layers = Vec::new();
        for (number, (layer, diff)) in manifest.layers.iter().zip(diffs).enumerate() {
            let mib = layer.size.div_ceil(1 << 20);
            let detail = format!("layer {} of {} ({mib} MiB)", number + 1, diffs.len());
            let on_bytes = |bytes: u64| {
                let fraction = (done + bytes) as f32 / all.max(1) as f32;
                (self.on_fetch)(&detail, Some(fraction));
            };
            let file = self.fetch(&on_bytes, cancel).blob(layer).await?;
            let sha256 = self.sha256(&layer.digest)?;
            let diff = self.sha256(diff)?;
            layers.push(LayerPiece::new(sha256.clone(), layer.size, Some(diff)));
            files.insert(sha256, file);
            done += layer.size;
        }
        let (env, workdir) = config.environment();
        let imported = Imported {
            format: FORMAT,
            origin: Origin::Oci(self.reference.to_string()),
            content,
            arch: Arch::HOST,
            layers,
            env,
            workdir,
            created_unix: unix_now(),
        };
        Ok(Pulled { imported, files })
    }

    fn fetch<'a>(&'a self, on_bytes: &'a dyn Fn(u64), cancel: &'a CancellationToken) -> Fetch<'a> {
        Fetch {
            client: self.client,
            reference: self.reference,
            folder: self.folder,
            on_bytes,
            cancel,
        }
    }

    /// The manifest for this host's platform, with its SHA-256.
    async fn manifest(&self) -> Result<(String, Manifest), ImportError> {
        let mut text = self.manifest_text(self.reference).await?;
        if let Ok(index) = serde_json::from_slice::<Index>(&text) {
            let digest =
                index
                    .digest_for(Arch::HOST)
                    .ok_or_else(|| ImportError::WrongPlatform {
                        reference: self.reference.to_string(),
                        wanted: Arch::HOST.debian(),
                        found: index.platforms(),
                    })?;
            self.sha256(digest)?;
            let one = self.reference.clone_with_digest(digest.to_owned());
            text = self.manifest_text(&one).await?;
            // The crate compares, too; what is stored here depends on it.
            let found = format!("sha256:{}", sha256_of(&text));
            if found != digest {
                return Err(ImportError::Digest {
                    what: "the manifest".to_owned(),
                    expected: digest.to_owned(),
                    found,
                });
            }
        }
        let manifest = self.parse(&text, "manifest")?;
        Ok((sha256_of(&text), manifest))
    }

    async fn manifest_text(&self, reference: &Reference) -> Result<Vec<u8>, ImportError> {
        let (text, _) = self
            .client
            .pull_manifest_raw(reference, &RegistryAuth::Anonymous, &MANIFEST_KINDS)
            .await
            .map_err(|source| registry_error(reference, source))?;
        Ok(text.to_vec())
    }

    fn check_platform(&self, config: &Config) -> Result<(), ImportError> {
        let wanted = Arch::HOST.debian();
        if config.os == "linux" && config.architecture == wanted {
            return Ok(());
        }
        Err(ImportError::WrongPlatform {
            reference: self.reference.to_string(),
            wanted,
            found: format!("{}/{}", config.os, config.architecture),
        })
    }

    fn parse<T: serde::de::DeserializeOwned>(
        &self,
        text: &[u8],
        what: &str,
    ) -> Result<T, ImportError> {
        serde_json::from_slice(text)
            .map_err(|error| self.not_an_image(&format!("its {what} cannot be read: {error}")))
    }

    fn sha256(&self, digest: &str) -> Result<String, ImportError> {
        Descriptor::sha256_of(digest)
            .map(str::to_owned)
            .ok_or_else(|| self.not_an_image(&format!("{digest:?} is no SHA-256")))
    }

    fn not_an_image(&self, problem: &str) -> ImportError {
        ImportError::NotAnImage {
            reference: self.reference.to_string(),
            problem: problem.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_spoken_to_in_the_clear() {
        for registry in [
            "localhost",
            "localhost:5000",
            "127.0.0.1:5000",
            "127.9.9.9",
            "[::1]:5",
        ] {
            assert!(is_loopback(registry), "{registry}");
        }
        for registry in [
            "index.docker.io",
            "localhost.example:5000",
            "127.0.0.1.example",
            "10.0.0.1:5000",
            "example:localhost",
        ] {
            assert!(!is_loopback(registry), "{registry}");
        }
    }

    #[test]
    fn references_are_made_whole() {
        let whole = |text| whole_reference(text).unwrap().to_string();
        assert_eq!(whole("alpine"), "docker.io/library/alpine:latest");
        assert_eq!(whole("127.0.0.1:5000/a:1"), "127.0.0.1:5000/a:1");
    }
}
