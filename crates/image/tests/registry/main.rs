//! Images from a real registry on loopback: Debian's `docker-registry`, with images made here.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use airlock_image::{
    Catalog, ImageError, ImageSource, ImportError, Owners, Phase, Progress, Tree, TreeError,
};
use airlock_model::{HomePaths, ImageName};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use push::{ARCH, GZIP_LAYER, INDEX, Image, Layer, MANIFEST, Pusher, ZSTD_LAYER, digest};
use server::{Proxy, Server};

mod push;
mod server;

struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn paths(&self) -> HomePaths {
        HomePaths::new(self.folder.path().join("home"))
    }

    fn catalog(&self) -> Catalog {
        Catalog::new(&self.paths())
    }

    fn import(&self, source: &ImageSource) -> Result<ImageName, ImageError> {
        let cancel = CancellationToken::new();
        self.catalog().import(source, &quiet, &cancel)
    }

    fn import_newest(&self, source: &ImageSource) -> Result<ImageName, ImageError> {
        let cancel = CancellationToken::new();
        self.catalog().import_newest(source, &quiet, &cancel)
    }

    fn tree(&self, name: &ImageName) -> Result<Tree, ImageError> {
        let cancel = CancellationToken::new();
        self.catalog()
            .ensure_tree(name, Owners::Caller, &quiet, &cancel)
    }

    fn blobs(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.paths().cache().join("oci"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }
}

fn quiet(_: Progress) {}

fn oci(address: SocketAddr, name: &str) -> ImageSource {
    format!("oci:{address}/{name}").parse().unwrap()
}

fn failure(outcome: Result<ImageName, ImageError>) -> ImportError {
    match outcome {
        Err(ImageError::Import { source, .. }) => *source,
        outcome => panic!("{outcome:?}"),
    }
}

fn text(tree: &Tree, path: &str) -> Option<String> {
    std::fs::read_to_string(tree.path.join(path)).ok()
}

/// Bytes that do not compress, so that sizes on the wire are known.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

fn sample() -> Image {
    Image::new(vec![
        Layer::new(
            GZIP_LAYER,
            &[
                ("etc/", b""),
                ("etc/below", b"below"),
                ("etc/kept", b"kept"),
                ("opt/old/file", b"old"),
            ],
        ),
        Layer::new(
            ZSTD_LAYER,
            &[
                ("etc/.wh.below", b""),
                ("opt/old/.wh..wh..opq", b""),
                ("opt/old/new", b"new"),
            ],
        ),
    ])
}

#[test]
fn an_image_for_several_platforms_becomes_a_tree() {
    let Some(server) = Server::start() else {
        return;
    };
    let pusher = Pusher::new(server.address);
    let (other, other_bytes) = pusher.image(
        "team/app:other",
        &Image {
            arch: "s390x",
            layers: vec![Layer::new(GZIP_LAYER, &[("wrong", b"wrong")])],
        },
    );
    let (own, own_bytes) = pusher.image("team/app:own", &sample());
    let entry = |digest: &str, bytes: usize, arch: &str| {
        json!({
            "mediaType": MANIFEST, "digest": digest, "size": bytes,
            "platform": {"architecture": arch, "os": "linux"},
        })
    };
    let index = json!({
        "schemaVersion": 2, "mediaType": INDEX,
        "manifests": [entry(&other, other_bytes, "s390x"), entry(&own, own_bytes, ARCH)],
    });
    pusher.manifest("team/app:1", INDEX, &index);

    let home = Home::new();
    let source = oci(server.address, "team/app:1");
    let name = home.import(&source).unwrap();
    assert!(name.as_str().starts_with("oci-127-0-0-1-"), "{name}");
    assert!(
        name.as_str().ends_with(&own[7..19]),
        "{name}: the manifest's digest is {own}"
    );
    let tree = home.tree(&name).unwrap();
    assert_eq!(text(&tree, "etc/kept").as_deref(), Some("kept"));
    assert_eq!(text(&tree, "opt/old/new").as_deref(), Some("new"));
    for gone in ["etc/below", "opt/old/file", "etc/.wh.below", "wrong"] {
        assert!(!tree.path.join(gone).exists(), "{gone}");
    }
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        tree.env,
        [pair("PATH", "/opt/bin:/bin"), pair("GREETING", "hello")]
    );
    assert_eq!(tree.workdir.as_deref(), Some("/srv"));

    // By digest it is the same content.
    let by_digest = oci(server.address, &format!("team/app@{own}"));
    let same = home.tree(&home.import(&by_digest).unwrap()).unwrap();
    assert_eq!(same.digest, tree.digest);

    // It needs neither the registry nor the cache any more.
    drop(server);
    std::fs::remove_dir_all(home.paths().cache()).unwrap();
    assert_eq!(home.import(&source).unwrap(), name);
    assert_eq!(home.tree(&name).unwrap(), tree);
    let error = failure(home.import_newest(&source));
    assert!(error.is_network(), "{error:?}");
}

#[test]
fn a_moved_tag_is_followed_on_request_and_no_layer_comes_twice() {
    let Some(server) = Server::start() else {
        return;
    };
    let pusher = Pusher::new(server.address);
    let proxy = Proxy::start(&server);
    let base = noise(1 << 20);
    let with = |mark: &[u8]| {
        Image::new(vec![
            Layer::new(GZIP_LAYER, &[("base", &base)]),
            Layer::new(GZIP_LAYER, &[("mark", mark)]),
        ])
    };
    pusher.image("app:latest", &with(b"one"));
    let home = Home::new();
    let source = oci(proxy.address, "app");
    let first = home.import(&source).unwrap();
    assert!(proxy.bytes() > 1 << 20);

    pusher.image("app:latest", &with(b"two"));
    let before = proxy.bytes();
    assert_eq!(home.import(&source).unwrap(), first);
    assert_eq!(proxy.bytes(), before, "nobody was asked");
    let second = home.import_newest(&source).unwrap();
    assert_ne!(second, first);
    assert!(proxy.bytes() - before < 100 << 10, "the base was there");
    assert_eq!(home.import(&source).unwrap(), second);
    let mark = |name: &ImageName| text(&home.tree(name).unwrap(), "mark");
    assert_eq!(mark(&first).as_deref(), Some("one"));
    assert_eq!(mark(&second).as_deref(), Some("two"));
}

#[test]
fn a_broken_download_goes_on_where_it_stopped() {
    const BYTES: u64 = 4 << 20;
    let Some(server) = Server::start() else {
        return;
    };
    let proxy = Proxy::start(&server);
    let big = noise(BYTES as usize);
    let image = Image::new(vec![Layer::new(GZIP_LAYER, &[("big", &big)])]);
    Pusher::new(server.address).image("big:1", &image);
    let home = Home::new();
    proxy.cut_after(3 << 20);
    let name = home.import(&oci(proxy.address, "big:1")).unwrap();
    let sent = proxy.bytes();
    assert!(
        sent > BYTES && sent < BYTES + (1 << 20),
        "{sent} bytes for {BYTES}"
    );
    let tree = home.tree(&name).unwrap();
    assert_eq!(std::fs::read(tree.path.join("big")).unwrap(), big);
    let is_part = |path: &PathBuf| path.extension().is_some_and(|end| end == "part");
    assert!(!home.blobs().iter().any(is_part));
}

#[test]
fn a_cancelled_download_keeps_what_it_has() {
    const BYTES: u64 = 8 << 20;
    let Some(server) = Server::start() else {
        return;
    };
    let proxy = Proxy::start(&server);
    let image = Image::new(vec![Layer::new(
        GZIP_LAYER,
        &[("big", &noise(BYTES as usize))],
    )]);
    Pusher::new(server.address).image("big:1", &image);
    let home = Home::new();
    let source = oci(proxy.address, "big:1");
    let cancel = CancellationToken::new();
    let stop = |step: Progress| {
        if step.phase == Phase::Fetching && step.fraction.is_some_and(|done| done > 0.5) {
            cancel.cancel();
        }
    };
    let error = home.catalog().import(&source, &stop, &cancel).unwrap_err();
    assert!(error.is_cancelled(), "{error:?}");
    let part = home
        .blobs()
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "part"))
        .expect("the first half");
    let kept = std::fs::metadata(&part).unwrap().len();
    assert!(kept > BYTES / 2);
    let before = proxy.bytes();
    home.import(&source).unwrap();
    assert!(proxy.bytes() - before < BYTES - kept + (64 << 10));

    // A part that is wrong costs a whole download and nothing else.
    let done = part.with_extension("");
    let mut bytes = std::fs::read(&done).unwrap();
    std::fs::remove_file(&done).unwrap();
    bytes.truncate(1 << 20);
    bytes[5] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    std::fs::remove_dir_all(home.paths().images()).unwrap();
    let name = home.import(&source).unwrap();
    assert!(home.tree(&name).is_ok());
}

#[test]
fn wrong_bytes_are_refused() {
    let Some(server) = Server::start() else {
        return;
    };
    let pusher = Pusher::new(server.address);
    let image = sample();
    pusher.image("app:1", &image);
    let blob = server.blob(&digest(&image.layers[1].packed)[7..]);
    let mut bytes = std::fs::read(&blob).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    let home = Home::new();
    let error = failure(home.import(&oci(server.address, "app:1")));
    assert!(matches!(error, ImportError::Digest { .. }), "{error:?}");
    assert!(
        std::fs::read_dir(home.paths().images())
            .unwrap()
            .next()
            .is_none()
    );

    // A manifest that was swapped for another, asked for by its digest.
    let (wanted, _) = pusher.image("app:2", &sample());
    let manifest = server.blob(&wanted[7..]);
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(
        &manifest,
        text.replace("\"schemaVersion\":2", "\"schemaVersion\":2 "),
    )
    .unwrap();
    let by_digest = oci(server.address, &format!("app@{wanted}"));
    let error = failure(home.import(&by_digest));
    assert!(matches!(error, ImportError::Registry { .. }), "{error:?}");

    // The layer is what its digest says, but not what the configuration says.
    let mut layer = Layer::new(GZIP_LAYER, &[("other", b"other")]);
    layer.diff_id = digest(b"another");
    pusher.image("app:3", &Image::new(vec![layer]));
    let name = home.import(&oci(server.address, "app:3")).unwrap();
    let outcome = home.tree(&name);
    assert!(
        matches!(
            outcome,
            Err(ImageError::Tree {
                source: TreeError::Digest { .. },
                ..
            })
        ),
        "{outcome:?}"
    );
    assert_eq!(count_trees(&home.paths().image(&name)), 0);
}

#[test]
fn what_is_no_image_for_this_host_is_told() {
    let Some(server) = Server::start() else {
        return;
    };
    let pusher = Pusher::new(server.address);
    let home = Home::new();
    let error = failure(home.import(&oci(server.address, "nothing:1")));
    assert!(error.is_not_found(), "{error:?}");
    assert!(error.hint().is_some());

    pusher.image(
        "app:s390x",
        &Image {
            arch: "s390x",
            layers: sample().layers,
        },
    );
    let error = failure(home.import(&oci(server.address, "app:s390x")));
    assert!(
        matches!(error, ImportError::WrongPlatform { .. }),
        "{error:?}"
    );

    let mut chart = sample();
    chart.layers[0].media_type = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
    pusher.image("chart:1", &chart);
    let error = failure(home.import(&oci(server.address, "chart:1")));
    assert!(matches!(error, ImportError::NotAnImage { .. }), "{error:?}");
    assert!(
        std::fs::read_dir(home.paths().images())
            .unwrap()
            .next()
            .is_none()
    );
}

#[test]
fn a_hostile_layer_reaches_nothing_outside() {
    let Some(server) = Server::start() else {
        return;
    };
    let home = Home::new();
    let outside = home.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    archive.append_link(&mut header, "way", &outside).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    archive
        .append_data(&mut header, "way/file", &b"lost"[..])
        .unwrap();
    let plain = archive.into_inner().unwrap();
    let layer = Layer {
        media_type: "application/vnd.oci.image.layer.v1.tar",
        diff_id: digest(&plain),
        packed: plain,
    };
    Pusher::new(server.address).image("evil:1", &Image::new(vec![layer]));
    let name = home.import(&oci(server.address, "evil:1")).unwrap();
    let outcome = home.tree(&name);
    assert!(
        matches!(
            outcome,
            Err(ImageError::Tree {
                source: TreeError::NotBelowFolder { .. },
                ..
            })
        ),
        "{outcome:?}"
    );
    assert!(std::fs::read_dir(&outside).unwrap().next().is_none());
    assert_eq!(count_trees(&home.paths().image(&name)), 0);
}

#[test]
fn many_pulls_at_once_fetch_each_layer_once() {
    const BYTES: u64 = 2 << 20;
    let Some(server) = Server::start() else {
        return;
    };
    let proxy = Proxy::start(&server);
    let image = Image::new(vec![Layer::new(
        GZIP_LAYER,
        &[("big", &noise(BYTES as usize))],
    )]);
    Pusher::new(server.address).image("big:1", &image);
    let home = Home::new();
    let source = oci(proxy.address, "big:1");
    let names: Vec<ImageName> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| home.import(&source).unwrap()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(names.iter().all(|name| *name == names[0]));
    assert!(proxy.bytes() < 2 * BYTES, "{}", proxy.bytes());
    assert!(home.tree(&names[0]).is_ok());
}

#[test]
fn an_async_program_can_import_on_a_blocking_thread() {
    let Some(server) = Server::start() else {
        return;
    };
    Pusher::new(server.address).image("app:1", &sample());
    let home = Home::new();
    let source = oci(server.address, "app:1");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let name = runtime.block_on(async {
        let catalog = home.catalog();
        tokio::task::spawn_blocking(move || {
            catalog.import(&source, &quiet, &CancellationToken::new())
        })
        .await
        .unwrap()
    });
    assert!(home.tree(&name.unwrap()).is_ok());
}

#[test]
fn a_damaged_image_can_be_made_again_from_the_registry() {
    let Some(server) = Server::start() else {
        return;
    };
    Pusher::new(server.address).image("app:1", &sample());
    let home = Home::new();
    let source = oci(server.address, "app:1");
    let name = home.import(&source).unwrap();
    for entry in std::fs::read_dir(home.paths().image(&name)).unwrap() {
        let path = entry.unwrap().path();
        let is_layer = path.extension().is_none();
        if is_layer {
            // The same file as in the cache: both are wrong from here on.
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[30] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    assert!(matches!(home.tree(&name), Err(ImageError::Tree { .. })));
    home.catalog().rm(&name, &|_| Vec::new()).unwrap();
    assert_eq!(home.import(&source).unwrap(), name);
    assert!(home.tree(&name).is_ok());
}

fn count_trees(dir: &Path) -> usize {
    std::fs::read_dir(dir)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir())
        .count()
}
