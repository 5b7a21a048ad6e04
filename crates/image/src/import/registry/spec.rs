//! What of the OCI image specification Airlock reads; Docker's own forms have the same fields.

use serde::Deserialize;

use crate::host::Arch;

const SHA256: &str = "sha256:";
const SHA256_DIGITS: usize = 64;

/// Something that can be fetched by its digest.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Descriptor {
    #[serde(rename = "mediaType", default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
}

impl Descriptor {
    /// The hexadecimal digits of a digest; `None` for another algorithm or none at all.
    pub(super) fn sha256_of(digest: &str) -> Option<&str> {
        let digits = digest.strip_prefix(SHA256)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (digits.len() == SHA256_DIGITS && digits.bytes().all(is_digit)).then_some(digits)
    }

    /// Whether it is an archive of files; other artefacts use the same registries.
    pub(super) fn is_layer(&self) -> bool {
        let is_file_system = [
            "application/vnd.oci.image.layer.",
            "application/vnd.docker.image.",
        ]
        .iter()
        .any(|start| self.media_type.starts_with(start));
        is_file_system && self.media_type.contains("tar") && !self.media_type.contains("encrypted")
    }
}

/// An image for one platform.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Manifest {
    pub(super) config: Descriptor,
    /// From the lowest to the highest.
    pub(super) layers: Vec<Descriptor>,
}

/// The same image for several platforms.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Index {
    manifests: Vec<IndexEntry>,
}

#[derive(Debug, Clone, Deserialize)]
struct IndexEntry {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

impl Index {
    /// The digest of the manifest for this architecture.
    pub(super) fn digest_for(&self, arch: Arch) -> Option<&str> {
        let is_wanted =
            |platform: &Platform| platform.os == "linux" && platform.architecture == arch.debian();
        self.manifests
            .iter()
            .find(|entry| entry.platform.as_ref().is_some_and(is_wanted))
            .map(|entry| entry.digest.as_str())
    }

    /// What there is, for a message.
    pub(super) fn platforms(&self) -> String {
        self.manifests
            .iter()
            .filter_map(|entry| entry.platform.as_ref())
            .map(|platform| format!("{}/{}", platform.os, platform.architecture))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// How the image's programs are run, and the digests of its unpacked layers.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Config {
    pub(super) architecture: String,
    pub(super) os: String,
    pub(super) rootfs: RootFs,
    #[serde(rename = "config")]
    run: Option<RunConfig>,
}

/// The digests of the layers without their compression.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RootFs {
    pub(super) diff_ids: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct RunConfig {
    #[serde(rename = "Env")]
    env: Option<Vec<String>>,
    #[serde(rename = "WorkingDir")]
    workdir: Option<String>,
}

impl Config {
    /// The variables and the folder that the image gives its programs.
    pub(super) fn environment(&self) -> (Vec<(String, String)>, Option<String>) {
        let Some(run) = &self.run else {
            return (Vec::new(), None);
        };
        let env = run.env.iter().flatten().filter_map(|variable| {
            let (key, value) = variable.split_once('=')?;
            let is_usable = !key.is_empty() && !variable.contains('\0');
            is_usable.then(|| (key.to_owned(), value.to_owned()))
        });
        let workdir = run.workdir.clone().filter(|folder| folder.starts_with('/'));
        (env.collect(), workdir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_sha256_alone() {
        let digits = "0123456789abcdef".repeat(4);
        assert_eq!(
            Descriptor::sha256_of(&format!("sha256:{digits}")),
            Some(&*digits)
        );
        for digest in [
            digits.clone(),
            format!("sha512:{digits}"),
            format!("sha256:{}", digits.to_uppercase()),
            "sha256:../../x".to_owned(),
            format!("sha256:{}", &digits[1..]),
        ] {
            assert_eq!(Descriptor::sha256_of(&digest), None, "{digest}");
        }
    }

    #[test]
    fn tells_layers_from_other_artefacts() {
        for (media_type, is_layer) in [
            ("application/vnd.oci.image.layer.v1.tar", true),
            ("application/vnd.oci.image.layer.v1.tar+zstd", true),
            ("application/vnd.docker.image.rootfs.diff.tar.gzip", true),
            (
                "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
                false,
            ),
            ("application/vnd.cncf.helm.chart.content.v1.tar+gzip", false),
            ("", false),
        ] {
            let descriptor = Descriptor {
                media_type: media_type.to_owned(),
                digest: String::new(),
                size: 0,
            };
            assert_eq!(descriptor.is_layer(), is_layer, "{media_type}");
        }
    }

    #[test]
    fn reads_environments_and_drops_what_is_none() {
        let text = r#"{"architecture":"amd64","os":"linux","rootfs":{"diff_ids":[]},
            "config":{"Env":["PATH=/a:/b","A=x=y","=x","B"],"WorkingDir":"relative"}}"#;
        let config: Config = serde_json::from_str(text).unwrap();
        let (env, workdir) = config.environment();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(env, [pair("PATH", "/a:/b"), pair("A", "x=y")]);
        assert_eq!(workdir, None);
    }
}
