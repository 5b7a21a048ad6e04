//! A real registry on loopback, and a proxy before it that can break connections.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A `docker-registry` process with a storage of its own.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts it; `None` where the environment says that there shall be none.
    pub(crate) fn start() -> Option<Self> {
        if std::env::var_os("AIRLOCK_SKIP_REGISTRY").is_some() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let storage = folder.path().join("storage");
        let config = folder.path().join("config.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: info, accesslog: {{disabled: true}}}}\n\
             storage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"127.0.0.1:0\"}}\n",
            storage.display()
        );
        std::fs::write(&config, text).expect("a writable folder");
        let mut child = Command::new("docker-registry")
            .arg("serve")
            .arg(&config)
            .stderr(Stdio::piped())
            .spawn()
            .expect(
                "docker-registry is not in PATH: install Debian's package docker-registry, \
                 or set AIRLOCK_SKIP_REGISTRY=1 to leave these tests out",
            );
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, rest) = line.split_once("listening on ")?;
                rest.split(['"', ' ']).next()?.parse().ok()
            })
            .expect("the registry says where it listens");
        // What it says from here on is nobody's, but a full pipe would stop it.
        thread::spawn(move || lines.for_each(drop));
        Some(Self {
            child,
            address,
            folder,
        })
    }

    /// The file in which the registry keeps a blob.
    pub(crate) fn blob(&self, digits: &str) -> PathBuf {
        let blobs = Path::new("storage/docker/registry/v2/blobs/sha256");
        self.folder
            .path()
            .join(blobs)
            .join(&digits[..2])
            .join(digits)
            .join("data")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes connections on and counts what comes back.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    /// All that the registry sent through here.
    bytes: AtomicU64,
    /// After how many of them the connection breaks; once.
    cut_at: AtomicU64,
}

impl Proxy {
    /// A proxy before `server`.
    pub(crate) fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            upstream: server.address,
            bytes: AtomicU64::new(0),
            cut_at: AtomicU64::new(u64::MAX),
        });
        let proxy = Self {
            address,
            shared: Arc::clone(&shared),
        };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(&client));
            }
        });
        proxy
    }

    /// Breaks the connection over which the byte number `bytes` from now comes.
    pub(crate) fn cut_after(&self, bytes: u64) {
        let cut_at = self.bytes() + bytes;
        self.shared.cut_at.store(cut_at, Ordering::SeqCst);
    }

    /// How much came from the registry until now.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn serve(&self, client: &TcpStream) {
        let Ok(server) = TcpStream::connect(self.upstream) else {
            return;
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let _ = std::io::copy(&mut &*client, &mut &server);
                let _ = server.shutdown(Shutdown::Write);
            });
            let mut buffer = vec![0; 16 << 10];
            while let Ok(bytes @ 1..) = (&server).read(&mut buffer) {
                let sent = self.bytes.fetch_add(bytes as u64, Ordering::SeqCst) + bytes as u64;
                if sent > self.cut_at.load(Ordering::SeqCst) {
                    self.cut_at.store(u64::MAX, Ordering::SeqCst);
                    break;
                }
                if (&*client).write_all(&buffer[..bytes]).is_err() {
                    break;
                }
            }
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        });
    }
}
