//! A guestd in a thread of this process, and a connection to it.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use airlock::GuestPath;
use airlock::transfer::{
    Connection, DownloadError, DownloadOptions, Downloaded, LaneLease, LaneSession, LaneUnusable,
    Receipt, Source, Target, UploadError, UploadOptions, download, upload,
};
use airlock_guestd::server::{self, AccessConfig, Config, Listen, Role, Token};
use airlock_lane::faults::LaneFaults;
use airlock_lane::{LaneDevice, LaneMemory};
use airlock_model::LaneGeometry;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A guestd that serves until dropped.
pub(crate) struct Guest {
    pub(crate) address: SocketAddr,
    pub(crate) memory: LaneMemory,
    /// The Space's file system, as far as tests use it.
    dir: Mutex<Option<TempDir>>,
    root: PathBuf,
    shutdown: CancellationToken,
    kill: CancellationToken,
    killed: Mutex<mpsc::Receiver<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Guest {
    pub(crate) fn start() -> Self {
        Self::with_faults(None)
    }

    /// A guestd whose side of the lane has faults.
    pub(crate) fn with_faults(faults: Option<Arc<LaneFaults>>) -> Self {
        let memory = LaneMemory::create(LaneGeometry::STANDARD).unwrap();
        let file = File::from(memory.as_fd().try_clone_to_owned().unwrap());
        let mut lane = LaneDevice::adopt(file, Path::new("memfd")).unwrap();
        if let Some(faults) = faults {
            lane = lane.with_faults(faults);
        }
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let kill = CancellationToken::new();
        let kill_now = kill.clone();
        let (send_killed, killed) = mpsc::channel();
        let (send_address, address) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            // One thread, as the real daemon has it.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let config = Config {
                    listen: Listen::Address("127.0.0.1:0".parse().unwrap()),
                    access: AccessConfig::Token(Token::new(TOKEN).unwrap()),
                    role: Role::Plain,
                    cgroup: None,
                    lane: Some(lane),
                };
                let server = server::build(config).await.unwrap();
                send_address.send(server.address().unwrap()).unwrap();
                tokio::select! {
                    ended = server.serve(stop) => { ended.unwrap(); }
                    () = kill_now.cancelled() => {}
                }
            });
            // Drops every task where it stands.
            drop(runtime);
            let _ = send_killed.send(());
        });
        let dir = tempfile::tempdir().unwrap();
        Self {
            address: address.recv().unwrap(),
            memory,
            root: dir.path().to_owned(),
            dir: Mutex::new(Some(dir)),
            shutdown,
            kill,
            killed: Mutex::new(killed),
            thread: Some(thread),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn guest_path(&self, name: &str) -> GuestPath {
        use std::os::unix::ffi::OsStrExt as _;
        GuestPath::new(self.path(name).as_os_str().as_bytes())
    }

    pub(crate) async fn connect(&self) -> Connection {
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Connection::over(stream, TOKEN).await.unwrap()
    }

    pub(crate) fn lease(&self, id: u8, slots: impl IntoIterator<Item = u32>) -> LaneLease {
        let memory = self.memory.dup().unwrap();
        LaneLease::new([id; 16], slots.into_iter().collect(), memory, Box::new(()))
    }

    /// What people have: a connection and eight slots.
    pub(crate) async fn client(&self) -> Client {
        let connection = self.connect().await;
        let session = LaneSession::attach(&connection, self.lease(1, 0..8)).await;
        Client {
            connection,
            lane: Ok(session.unwrap()),
        }
    }

    /// A client with another lease, on other slots: a feeder of the first may still be about to
    /// notice that its upload is over.
    pub(crate) async fn client_after(&self, id: u8) -> Client {
        let connection = self.connect().await;
        let session = LaneSession::attach(&connection, self.lease(id, 8..16)).await;
        Client {
            connection,
            lane: Ok(session.unwrap()),
        }
    }

    /// Ends the daemon at once, whatever it does; gives what it leaves behind.
    pub(crate) fn kill(&self) -> TempDir {
        self.kill.cancel();
        self.killed.lock().unwrap().recv().unwrap();
        self.dir.lock().unwrap().take().unwrap()
    }

    /// The same with faults on the host's side of the lane, which begin after the proof.
    pub(crate) async fn client_with_faults(&self, faults: Arc<LaneFaults>) -> Client {
        let connection = self.connect().await;
        let mut lease = self.lease(1, 0..8);
        lease.memory = lease.memory.with_faults(faults);
        let session = LaneSession::attach(&connection, lease).await;
        Client {
            connection,
            lane: Ok(session.unwrap()),
        }
    }

    /// A client without a lane.
    pub(crate) async fn network_client(&self) -> Client {
        Client {
            connection: self.connect().await,
            lane: Err(LaneUnusable::new("no lane in this test")),
        }
    }

    /// Whether nothing but files of these names is in the Space.
    pub(crate) fn assert_only(&self, names: &[&str]) {
        assert_only(&self.root, names);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(thread) = self.thread.take() {
            let joined = thread.join();
            if !std::thread::panicking() {
                joined.unwrap();
            }
        }
    }
}

pub(crate) fn assert_only(dir: &Path, names: &[&str]) {
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, names);
}

pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) lane: Result<LaneSession, LaneUnusable>,
}

impl Client {
    pub(crate) async fn upload(
        &self,
        source: impl Into<Source>,
        dest: &GuestPath,
    ) -> Result<Receipt, UploadError> {
        let options = UploadOptions {
            sha256: true,
            ..UploadOptions::default()
        };
        self.upload_with(source, dest, options, &CancellationToken::new())
            .await
    }

    pub(crate) async fn upload_with(
        &self,
        source: impl Into<Source>,
        dest: &GuestPath,
        options: UploadOptions,
        cancel: &CancellationToken,
    ) -> Result<Receipt, UploadError> {
        let lane = self.lane.as_ref();
        upload(
            &self.connection,
            lane,
            source.into(),
            dest,
            options,
            None,
            cancel,
        )
        .await
    }

    pub(crate) async fn download(
        &self,
        source: &GuestPath,
        target: impl Into<Target>,
    ) -> Result<Downloaded, DownloadError> {
        let options = DownloadOptions {
            sha256: true,
            ..DownloadOptions::default()
        };
        self.download_with(source, target, options, &CancellationToken::new())
            .await
    }

    pub(crate) async fn download_with(
        &self,
        source: &GuestPath,
        target: impl Into<Target>,
        options: DownloadOptions,
        cancel: &CancellationToken,
    ) -> Result<Downloaded, DownloadError> {
        let lane = self.lane.as_ref();
        download(
            &self.connection,
            lane,
            source,
            target.into(),
            options,
            None,
            cancel,
        )
        .await
    }

    pub(crate) async fn download_bytes(
        &self,
        source: &GuestPath,
    ) -> Result<Downloaded, DownloadError> {
        self.download(source, Target::Bytes { most: u64::MAX })
            .await
    }
}

/// Random bytes. The kernel makes them faster than an unoptimised test does.
pub(crate) fn content(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    getrandom::fill(&mut bytes).unwrap();
    bytes
}

/// The SHA-256 that `sha256sum` prints.
pub(crate) fn sha256(bytes: &[u8]) -> airlock_digest::Digest {
    let mut hasher = airlock_digest::FileHasher::new();
    hasher.update(bytes);
    hasher.finish()
}
