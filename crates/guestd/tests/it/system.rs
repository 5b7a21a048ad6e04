use airlock_guestd::server::{self, AccessConfig, BuildError, Config, Listen, Token};
use airlock_wire::cua::v1::system_service_client::SystemServiceClient;
use airlock_wire::cua::v1::{
    GetCapabilitiesRequest, HealthRequest, HealthStatus, InitRequest, MetricsRequest, ShutdownMode,
    ShutdownRequest,
};
use airlock_wire::{Fault, FaultKind};
use tonic::Request;

use crate::space::{Space, channel, command};

fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("Bearer {token}").parse().unwrap();
    request
        .metadata_mut()
        .insert("x-cua-env-authorization", value);
    request
}

#[tokio::test]
async fn capabilities_are_honest() {
    let space = Space::open().await;
    let answer = space
        .system
        .clone()
        .get_capabilities(GetCapabilitiesRequest {})
        .await;
    let caps = answer.unwrap().into_inner();
    assert_eq!((caps.protocol_version, caps.protocol_revision), (1, 13));
    assert!(caps.bulk.is_none() && !caps.version.is_empty());
    let limits = caps.limits.unwrap();
    assert_eq!(
        (limits.max_chunk_bytes, limits.preferred_chunk_bytes),
        (4 << 20, 1 << 20)
    );
    let supported = |name: &str| caps.features.iter().any(|f| f.name == name && f.supported);
    assert!(supported("pty") && !supported("fs_watch") && !supported("airlock.lane"));
}

#[tokio::test]
async fn health_and_metrics_answer() {
    let space = Space::open().await;
    let health = space
        .system
        .clone()
        .health(HealthRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(health.status(), HealthStatus::Serving);
    let metrics = space
        .system
        .clone()
        .metrics(MetricsRequest::default())
        .await
        .unwrap();
    let metrics = metrics.into_inner();
    assert!(metrics.cpu_count > 0 && metrics.memory_total_bytes > metrics.memory_used_bytes);
    assert!(metrics.disk_total_bytes > 0);
    let missing = MetricsRequest {
        disk_path: "/no/such".to_owned(),
    };
    let status = space.system.clone().metrics(missing).await.unwrap_err();
    assert_eq!(Fault::from_status(&status).kind, FaultKind::PathNotFound);
}

#[tokio::test]
async fn the_first_token_locks_the_door() {
    let space = Space::with(AccessConfig::AwaitInit).await;
    let mut system = space.system.clone();
    system.health(HealthRequest {}).await.unwrap();
    let refused = space.run(command(&["true"])).await.unwrap_err();
    assert_eq!(refused.kind, FaultKind::Unauthenticated);
    let init = InitRequest {
        token: "tok".to_owned(),
        env: [("GREETING".to_owned(), "hi".to_owned())].into(),
        default_workdir: "/usr".to_owned(),
        ..InitRequest::default()
    };
    let done = system.init(init.clone()).await.unwrap().into_inner();
    assert!(done.token_changed && !done.clock_adjusted);
    let status = system.health(HealthRequest {}).await.unwrap_err();
    assert_eq!(Fault::from_status(&status).kind, FaultKind::Unauthenticated);
    let status = system
        .health(with_token(HealthRequest {}, "wrong"))
        .await
        .unwrap_err();
    assert_eq!(Fault::from_status(&status).kind, FaultKind::Unauthenticated);
    system
        .health(with_token(HealthRequest {}, "tok"))
        .await
        .unwrap();
    let again = system
        .init(with_token(init, "tok"))
        .await
        .unwrap()
        .into_inner();
    assert!(!again.token_changed);
    let request = with_token(command(&["sh", "-c", "pwd; echo $GREETING"]), "tok");
    let stream = space
        .processes
        .clone()
        .start_process(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        crate::space::outcome(stream).await.unwrap().text(),
        "/usr\nhi\n"
    );
}

#[tokio::test]
async fn init_checks_everything_before_it_changes_anything() {
    let space = Space::with(AccessConfig::AwaitInit).await;
    let mut system = space.system.clone();
    let good = InitRequest {
        token: "tok".to_owned(),
        ..InitRequest::default()
    };
    let bad = [
        InitRequest {
            token: "a b".to_owned(),
            ..good.clone()
        },
        InitRequest {
            env: [("A=B".to_owned(), String::new())].into(),
            ..good.clone()
        },
        InitRequest {
            default_user: "nobody-here".to_owned(),
            ..good.clone()
        },
        InitRequest {
            ca_bundle: vec![1],
            ..good.clone()
        },
    ];
    for request in bad {
        assert!(system.init(request).await.is_err());
        system.health(HealthRequest {}).await.unwrap();
    }
}

#[tokio::test]
async fn without_a_token_only_loopback_is_served() {
    let config = |access| Config {
        listen: Listen::Address("0.0.0.0:0".parse().unwrap()),
        access,
        role: server::Role::Plain,
        cgroup: None,
        lane: None,
    };
    let refused = server::build(config(AccessConfig::Open)).await.unwrap_err();
    assert!(
        matches!(refused, BuildError::OpenToTheNetwork { .. }),
        "{refused}"
    );
    let token = Token::new("t").unwrap();
    server::build(config(AccessConfig::Token(token)))
        .await
        .unwrap();
}

#[tokio::test]
async fn plain_http_gets_health_and_nothing_else() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let space = Space::with(AccessConfig::Token(Token::new("t").unwrap())).await;
    for (line, status) in [
        ("GET /health", "204"),
        ("GET /x", "404"),
        ("PUT /health", "404"),
    ] {
        let mut stream = tokio::net::TcpStream::connect(space.address).await.unwrap();
        let request = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{line}: {answer}"
        );
    }
}

#[tokio::test]
async fn a_plain_process_ends_but_never_powers_off() {
    let config = Config {
        listen: Listen::Address("127.0.0.1:0".parse().unwrap()),
        access: AccessConfig::Open,
        role: server::Role::Plain,
        cgroup: None,
        lane: None,
    };
    let server = server::build(config).await.unwrap();
    let mut system = SystemServiceClient::new(channel(server.address().unwrap()));
    let serving = tokio::spawn(server.serve(tokio_util::sync::CancellationToken::new()));
    let ask = |mode: ShutdownMode| ShutdownRequest {
        mode: mode.into(),
        ..ShutdownRequest::default()
    };
    let status = system
        .shutdown(ask(ShutdownMode::GuestPoweroff))
        .await
        .unwrap_err();
    assert_eq!(
        Fault::from_status(&status).kind,
        FaultKind::FeatureUnsupported
    );
    assert!(
        system
            .shutdown(ask(ShutdownMode::Unspecified))
            .await
            .is_err()
    );
    system
        .shutdown(ask(ShutdownMode::DriverExit))
        .await
        .unwrap();
    drop(system);
    let ending = serving.await.unwrap().unwrap();
    assert_eq!(ending, airlock_guestd::state::Ending::Stop);
}
