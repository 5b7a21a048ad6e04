//! Makes images and pushes them to the registry.

use std::io::Write as _;
use std::net::SocketAddr;

use airlock_digest::FileHasher;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use serde_json::json;
use tar::{Builder, EntryType, Header};

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const GZIP_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(crate) const ZSTD_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

/// What the host's architecture is called in registries.
pub(crate) const ARCH: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut hasher = FileHasher::new();
    hasher.update(bytes);
    format!("sha256:{}", hasher.finish())
}

/// One layer, packed, with the digest of what is inside.
pub(crate) struct Layer {
    pub(crate) media_type: &'static str,
    pub(crate) packed: Vec<u8>,
    pub(crate) diff_id: String,
}

impl Layer {
    /// A layer with these files; empty content of a name that ends in `/` is a folder.
    pub(crate) fn new(media_type: &'static str, files: &[(&str, &[u8])]) -> Self {
        let mut archive = Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = Header::new_gnu();
            let (kind, mode) = if name.ends_with('/') {
                (EntryType::Directory, 0o755)
            } else {
                (EntryType::Regular, 0o644)
            };
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(1_600_000_000);
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, *content).unwrap();
        }
        let plain = archive.into_inner().unwrap();
        let packed = if media_type == ZSTD_LAYER {
            zstd::encode_all(&plain[..], 1).unwrap()
        } else {
            let level = flate2::Compression::fast();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(&plain).unwrap();
            encoder.finish().unwrap()
        };
        Self {
            media_type,
            packed,
            diff_id: digest(&plain),
        }
    }
}

/// An image to be pushed; by default for this host.
pub(crate) struct Image {
    pub(crate) arch: &'static str,
    pub(crate) layers: Vec<Layer>,
}

impl Image {
    pub(crate) fn new(layers: Vec<Layer>) -> Self {
        Self { arch: ARCH, layers }
    }
}

/// Pushes to one registry.
pub(crate) struct Pusher {
    runtime: tokio::runtime::Runtime,
    client: Client,
    address: SocketAddr,
}

impl Pusher {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = ClientConfig {
            protocol: ClientProtocol::Http,
            ..ClientConfig::default()
        };
        Self {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
            client: Client::try_from(config).unwrap(),
            address,
        }
    }

    fn reference(&self, name: &str) -> Reference {
        format!("{}/{name}", self.address).parse().unwrap()
    }

    fn blob(&self, name: &str, content: &[u8]) -> String {
        let reference = self.reference(name);
        let digest = digest(content);
        let content = content.to_vec();
        self.runtime.block_on(async {
            let auth = RegistryAuth::Anonymous;
            let operation = RegistryOperation::Push;
            self.client
                .auth(&reference, &auth, operation)
                .await
                .unwrap();
            self.client
                .push_blob(&reference, content, &digest)
                .await
                .unwrap();
        });
        digest
    }

    /// Pushes a manifest or an index; gives its digest.
    pub(crate) fn manifest(&self, name: &str, kind: &str, text: &serde_json::Value) -> String {
        let body = serde_json::to_vec(text).unwrap();
        let digest = digest(&body);
        let kind = kind.parse().unwrap();
        let reference = self.reference(name);
        self.runtime
            .block_on(self.client.push_manifest_raw(&reference, body, kind))
            .unwrap();
        digest
    }

    /// Pushes a whole image as `name`; gives the manifest's digest and size.
    pub(crate) fn image(&self, name: &str, image: &Image) -> (String, usize) {
        let diff_ids: Vec<&str> = image
            .layers
            .iter()
            .map(|layer| layer.diff_id.as_str())
            .collect();
        let config = json!({
            "architecture": image.arch, "os": "linux",
            "config": {"Env": ["PATH=/opt/bin:/bin", "GREETING=hello"], "WorkingDir": "/srv"},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = serde_json::to_vec(&config).unwrap();
        let layers: Vec<_> = image
            .layers
            .iter()
            .map(|layer| {
                let digest = self.blob(name, &layer.packed);
                json!({
                    "mediaType": layer.media_type, "digest": digest, "size": layer.packed.len(),
                })
            })
            .collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": self.blob(name, &config), "size": config.len(),
            },
            "layers": layers,
        });
        let bytes = serde_json::to_vec(&manifest).unwrap().len();
        (self.manifest(name, MANIFEST, &manifest), bytes)
    }
}
