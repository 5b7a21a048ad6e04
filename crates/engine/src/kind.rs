//! What a new Space shall be, and why: a VM where hardware runs it, else a container, else a VM
//! that is emulated.

use airlock_image::Image;
use airlock_model::{Accel, ImageName, Kind, Runtime, SpaceSpec};
use airlock_oci::runtime;
use airlock_process::RunAs;
use airlock_qemu::accel::{self, AccelError, KERNEL_MARKER, PROBE_DEADLINE, ProbeContext};
use airlock_qemu::{Backend, Qemu, Resolved, discover};
use tokio_util::sync::CancellationToken;

use crate::create::host_arch;
use crate::{Engine, EngineError};

/// A decided kind, with the reason where nobody asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) kind: Kind,
    pub(crate) runtime: Runtime,
    pub(crate) reason: Option<String>,
}

impl Engine {
    /// Decides what `spec` leaves open.
    pub(crate) async fn decide(
        &self,
        spec: &SpaceSpec,
        cancel: &CancellationToken,
    ) -> Result<Decision, EngineError> {
        match asked_for(spec)? {
            Kind::Vm => return Ok(Decision::vm(None)),
            Kind::Container => {
                let runtime = runtime::find(spec.runtime)?.name;
                return Ok(Decision::container(runtime, None));
            }
            Kind::Auto => {}
        }
        match self.settings()?.default.kind {
            Some(Kind::Vm) => return Ok(Decision::vm(Some(BY_SETTING.to_owned()))),
            Some(Kind::Container) => {
                let runtime = runtime::find(spec.runtime)?.name;
                return Ok(Decision::container(runtime, Some(BY_SETTING.to_owned())));
            }
            Some(Kind::Auto) | None => {}
        }
        let no_hardware = match self.hardware(&spec.image, cancel).await? {
            Ok(accel) => {
                let reason = format!("{accel} is proven to work here");
                return Ok(Decision::vm(Some(reason)));
            }
            Err(reason) => reason,
        };
        Ok(match runtime::find(Runtime::Auto) {
            Ok(runtime) => {
                let reason = format!(
                    "no hardware runs a VM here ({no_hardware}), and a container runs at full speed"
                );
                Decision::container(runtime.name, Some(reason))
            }
            Err(error) => {
                let reason = format!("a VM, emulated: {no_hardware}; and {error}");
                Decision::vm(Some(reason))
            }
        })
    }

    /// The accelerator that is proven to run VMs here, or why there is none.
    async fn hardware(
        &self,
        image: &ImageName,
        cancel: &CancellationToken,
    ) -> Result<Result<Backend, String>, EngineError> {
        if let Some(lacking) = accel::lacking() {
            return Ok(Err(lacking.to_owned()));
        }
        let qemu = match discover::find_qemu(host_arch()).await {
            Ok(qemu) => qemu,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let Some(image) = self.image_to_prove_with(image) else {
            let reason = "not proven yet; `airlock image build tiny` makes it possible";
            return Ok(Err(reason.to_owned()));
        };
        let resolved = tokio::select! {
            resolved = self.resolve(Accel::Auto, &qemu, &image) => resolved?,
            () = cancel.cancelled() => return Err(EngineError::Cancelled),
        };
        Ok(match resolved.accel {
            Backend::Kvm | Backend::Hvf => Ok(resolved.accel),
            Backend::Tcg => Err(resolved.reason),
        })
    }

    /// Turns what was asked for into an accelerator that runs `image`'s kernel here; a proof is
    /// remembered.
    pub(crate) async fn resolve(
        &self,
        requested: Accel,
        qemu: &Qemu,
        image: &Image,
    ) -> Result<Resolved, AccelError> {
        let context = ProbeContext {
            qemu,
            kernel: &image.kernel,
            initrd: &image.initramfs,
            marker: KERNEL_MARKER,
            cache: &self.home.cache().join("accel.json"),
            run_as: RunAs::for_vm(),
            deadline: PROBE_DEADLINE,
        };
        accel::resolve(requested, &context).await
    }

    /// An image that is built and has a kernel: the one that is wanted, or the smallest.
    fn image_to_prove_with(&self, wanted: &ImageName) -> Option<Image> {
        let tiny = ImageName::new("tiny").ok();
        [Some(wanted.clone()), tiny]
            .into_iter()
            .flatten()
            .find_map(|name| self.catalog().get(&name).ok())
    }
}

const BY_SETTING: &str = "the setting default.kind says so";

impl Decision {
    fn vm(reason: Option<String>) -> Self {
        Self {
            kind: Kind::Vm,
            runtime: Runtime::Qemu,
            reason,
        }
    }

    fn container(runtime: Runtime, reason: Option<String>) -> Self {
        Self {
            kind: Kind::Container,
            runtime,
            reason,
        }
    }
}

/// The kind that the flags ask for together; [`Kind::Auto`] if they leave it open.
fn asked_for(spec: &SpaceSpec) -> Result<Kind, EngineError> {
    let by_runtime = match spec.runtime {
        Runtime::Auto => Kind::Auto,
        Runtime::Qemu => Kind::Vm,
        Runtime::Runc | Runtime::Crun | Runtime::Youki | Runtime::Runsc => Kind::Container,
    };
    let by_accel = match spec.accel {
        Accel::Auto => Kind::Auto,
        Accel::Kvm | Accel::Hvf | Accel::Tcg => Kind::Vm,
    };
    let wishes = [
        (spec.kind, format!("--kind {}", spec.kind)),
        (by_runtime, format!("--runtime {}", spec.runtime)),
        (by_accel, format!("--accel {}", spec.accel)),
    ];
    let mut wishes = wishes.into_iter().filter(|(kind, _)| *kind != Kind::Auto);
    let Some((kind, first)) = wishes.next() else {
        return Ok(Kind::Auto);
    };
    match wishes.find(|(other, _)| *other != kind) {
        Some((_, second)) => Err(EngineError::Conflict { first, second }),
        None => Ok(kind),
    }
}

#[cfg(test)]
mod tests {
    use airlock_model::SpaceName;

    use super::*;

    fn spec(kind: Kind, runtime: Runtime, accel: Accel) -> SpaceSpec {
        let name = SpaceName::new("s").unwrap();
        let image = ImageName::new("tiny").unwrap();
        SpaceSpec {
            kind,
            runtime,
            accel,
            ..SpaceSpec::new(name, image)
        }
    }

    #[test]
    fn flags_agree_or_are_named() {
        let asked = |kind, runtime, accel| asked_for(&spec(kind, runtime, accel));
        let auto = (Kind::Auto, Runtime::Auto, Accel::Auto);
        assert_eq!(asked(auto.0, auto.1, auto.2).unwrap(), Kind::Auto);
        assert_eq!(
            asked(auto.0, Runtime::Runc, auto.2).unwrap(),
            Kind::Container
        );
        assert_eq!(asked(auto.0, auto.1, Accel::Tcg).unwrap(), Kind::Vm);
        assert_eq!(
            asked(Kind::Vm, Runtime::Qemu, Accel::Kvm).unwrap(),
            Kind::Vm
        );
        let refused = asked(Kind::Container, auto.1, Accel::Kvm).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "--kind container does not go with --accel kvm"
        );
        let refused = asked(Kind::Vm, Runtime::Crun, auto.2).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "--kind vm does not go with --runtime crun"
        );
        assert_eq!(refused.kind(), crate::ErrorKind::Usage);
    }
}
