//! The keeper's socket: status, connections, leases, stop.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use airlock_lane::LaneMemory;
use airlock_model::LaneGeometry;
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::guest::Guest;
use crate::protocol::{MessageStream, Request, Response, Status, TransportError};
use crate::slots::{LeaseId, SlotTable};

/// How often slots that nobody leases are emptied: a hostile Space can fill them at any time.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A client's wish to end the Space, with the line on which to say that it is done.
#[derive(Debug)]
pub(crate) struct StopWish {
    pub(crate) grace: Duration,
    pub(crate) done: oneshot::Sender<()>,
}

/// What every connection shares.
pub(crate) struct Server {
    guest: Guest,
    lane: Arc<LaneMemory>,
    slots: Mutex<SlotTable>,
    freed: Notify,
    status: watch::Receiver<Status>,
    stop: mpsc::Sender<StopWish>,
    cancel: CancellationToken,
    tasks: TaskTracker,
    own_uid: u32,
}

impl Server {
    pub(crate) fn new(
        guest: Guest,
        lane: Arc<LaneMemory>,
        status: watch::Receiver<Status>,
        stop: mpsc::Sender<StopWish>,
        cancel: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            guest,
            lane,
            slots: Mutex::new(SlotTable::new(LaneGeometry::STANDARD.slots)),
            freed: Notify::new(),
            status,
            stop,
            cancel,
            tasks: TaskTracker::new(),
            own_uid: rustix::process::geteuid().as_raw(),
        })
    }

    /// Serves `listener` until cancelled, then waits for every connection's task to end.
    pub(crate) async fn run(self: Arc<Self>, listener: UnixListener) {
        self.tasks.spawn(Arc::clone(&self).sweep());
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.cancel.cancelled() => break,
            };
            match accepted {
                Ok((socket, _)) => {
                    self.tasks
                        .spawn(Arc::clone(&self).client(MessageStream::new(socket)));
                }
                Err(error) => {
                    // Out of descriptors or memory: let some connection end first.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn client(self: Arc<Self>, mut stream: MessageStream) {
        match stream.peer_uid() {
            Ok(uid) if uid == self.own_uid => {}
            Ok(uid) => {
                tracing::warn!(uid, "a connection of another user was refused");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "a connection of an unknown user was refused");
                return;
            }
        }
        let cancel = self.cancel.clone();
        let served = tokio::select! {
            served = self.serve(&mut stream) => served,
            () = cancel.cancelled() => return,
        };
        match served {
            Ok(()) | Err(TransportError::Closed) => {}
            Err(error) => tracing::debug!(%error, "a connection ended"),
        }
    }

    async fn serve(&self, stream: &mut MessageStream) -> Result<(), TransportError> {
        loop {
            let (request, _) = stream.receive::<Request>().await?;
            match request {
                Request::Status => {
                    let status = self.status.borrow().clone();
                    stream.send(&Response::Status(status), None).await?;
                }
                Request::Connect => match self.guest.connect().await {
                    Ok(fd) => {
                        let token = self.guest.token().to_owned();
                        stream
                            .send(&Response::Connected { token }, Some(fd.as_fd()))
                            .await?;
                    }
                    Err(error) => {
                        let reason = format!("guestd cannot be reached: {error}");
                        stream.send(&Response::Refused { reason }, None).await?;
                    }
                },
                Request::Lease => return self.lease(stream).await,
                Request::Stop { grace } => {
                    let (done, stopped) = oneshot::channel();
                    let wish = StopWish { grace, done };
                    let response = match self.stop.send(wish).await {
                        Ok(()) if stopped.await.is_ok() => Response::Stopped,
                        Ok(()) | Err(_) => Response::Refused {
                            reason: "the keeper is ending".to_owned(),
                        },
                    };
                    stream.send(&response, None).await?;
                }
            }
        }
    }

    /// Leases slots for as long as `stream` lives, then drains and empties them.
    async fn lease(&self, stream: &mut MessageStream) -> Result<(), TransportError> {
        let mut id = LeaseId::default();
        getrandom::fill(&mut id).map_err(std::io::Error::from)?;
        let slots = tokio::select! {
            slots = self.take_slots(id) => slots,
            () = stream.closed() => return Ok(()),
        };
        let response = Response::Leased {
            lease: hex::encode(id),
            slots,
            geometry: LaneGeometry::STANDARD,
        };
        let sent = stream.send(&response, Some(self.lane.as_fd())).await;
        if sent.is_ok() {
            stream.closed().await;
        }
        self.slots().end(&id);
        self.guest.release(id).await;
        let drained = self.slots().drained(&id);
        for slot in drained {
            if let Err(error) = self.lane.punch(slot) {
                tracing::warn!(slot, %error, "cannot empty a slot");
            }
        }
        self.freed.notify_waiters();
        sent
    }

    async fn take_slots(&self, id: LeaseId) -> Vec<u32> {
        loop {
            // Registered before the look, so that a slot freed in between is not missed.
            let freed = self.freed.notified();
            if let Some(slots) = self.slots().lease(id) {
                return slots;
            }
            freed.await;
        }
    }

    async fn sweep(self: Arc<Self>) {
        let mut interval = tokio::time::interval(SWEEP_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                () = self.cancel.cancelled() => return,
            }
            // Held over the punching, so that no slot is leased between the look and the deed.
            let slots = self.slots();
            for slot in slots.free() {
                if let Err(error) = self.lane.punch(slot) {
                    tracing::warn!(slot, %error, "cannot empty a slot");
                    break;
                }
            }
        }
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, SlotTable> {
        // A panic elsewhere leaves the table whole: every change is one call.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
