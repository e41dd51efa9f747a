//! Certificates over real sockets: both protocols by ALPN, replacement under running connections,
//! files that cannot be used.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, RootCertStore, pki_types::ServerName},
};

use super::*;
use crate::{
    body,
    listen::{self, Options},
};

/// A self-signed certificate: its PEM, its key's PEM, its DER.
fn made() -> (String, String, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem(), made.cert.der().clone())
}

struct Files {
    folder: tempfile::TempDir,
    der: CertificateDer<'static>,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let der = made().2;
        let mut files = Self { folder, der };
        files.replace();
        files
    }

    /// Writes a new pair in place of the old.
    fn replace(&mut self) {
        let (certificate, key, der) = made();
        std::fs::write(self.path("tls.crt"), certificate).unwrap();
        std::fs::write(self.path("tls.key"), key).unwrap();
        self.der = der;
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn load(&self) -> Result<Certificates, TlsError> {
        let every = Duration::from_secs(3600);
        Certificates::load(self.path("tls.crt"), self.path("tls.key"), every)
    }
}

fn serve(certificates: &Arc<Certificates>, tasks: &Tasks) -> SocketAddr {
    let listener = listen::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
    let addr = listener.local_addr().unwrap();
    let options = Options { tls: Some(Arc::clone(certificates)), ..Options::default() };
    listen::serve(listener, options, tasks, |request, peer| async move {
        Response::new(body::full(format!("{:?} tls {}", request.version(), peer.tls)))
    })
    .unwrap();
    addr
}

/// Connects as a client that trusts `root` alone.
async fn connect(
    addr: SocketAddr,
    root: &CertificateDer<'static>,
    alpn: &[&[u8]],
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(addr).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

type Http1 = hyper::client::conn::http1::SendRequest<Empty<Bytes>>;

/// A client whose connection `tasks` drives.
async fn http1(stream: TlsStream<TcpStream>, tasks: &Tasks) -> Http1 {
    let (sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tasks.spawn(async { connection.await.unwrap() });
    sender
}

fn get(version: Version) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = "http://localhost/".parse().unwrap();
    *request.version_mut() = version;
    request
}

async fn text(response: Response<hyper::body::Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn alpn_chooses_the_protocol() {
    let (files, tasks) = (Files::new(), Tasks::default());
    let certificates = Arc::new(files.load().unwrap());
    let addr = serve(&certificates, &tasks);

    for alpn in [&[b"http/1.1".as_slice()][..], &[]] {
        let stream = connect(addr, &files.der, alpn).await.unwrap();
        let mut sender = http1(stream, &tasks).await;
        let answer = sender.send_request(get(Version::HTTP_11)).await.unwrap();
        assert_eq!(text(answer).await, "HTTP/1.1 tls true");
    }

    let stream = connect(addr, &files.der, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tasks.spawn(async { connection.await.unwrap() });
    let answer = sender.send_request(get(Version::HTTP_2)).await.unwrap();
    assert_eq!(text(answer).await, "HTTP/2.0 tls true");
}

#[tokio::test]
async fn a_reloaded_certificate_is_for_new_connections() {
    let (mut files, tasks) = (Files::new(), Tasks::default());
    let certificates = Arc::new(files.load().unwrap());
    let addr = serve(&certificates, &tasks);
    let old = files.der.clone();
    let mut sender = http1(connect(addr, &old, &[]).await.unwrap(), &tasks).await;
    text(sender.send_request(get(Version::HTTP_11)).await.unwrap()).await;

    files.replace();
    certificates.reload().unwrap();
    assert!(connect(addr, &old, &[]).await.is_err(), "the old certificate is still served");
    let mut new = http1(connect(addr, &files.der, &[]).await.unwrap(), &tasks).await;
    text(new.send_request(get(Version::HTTP_11)).await.unwrap()).await;
    sender.ready().await.unwrap();
    let answer = sender.send_request(get(Version::HTTP_11)).await.unwrap();
    assert_eq!(text(answer).await, "HTTP/1.1 tls true", "on the connection from before");

    // A key that does not fit leaves what was there.
    std::fs::write(files.path("tls.key"), made().1).unwrap();
    let error = certificates.reload().unwrap_err();
    assert!(matches!(error, TlsError::Pair { .. }), "{error}");
    connect(addr, &files.der, &[]).await.unwrap();
}

#[tokio::test]
async fn changed_files_are_noticed_also_behind_a_swapped_link() {
    let tasks = Tasks::default();
    let (first, second) = (Files::new(), Files::new());
    let folder = tempfile::tempdir().unwrap();
    // As Kubernetes mounts a secret: files link into a folder that is a link itself.
    let data = folder.path().join("..data");
    std::os::unix::fs::symlink(first.folder.path(), &data).unwrap();
    for name in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(Path::new("..data").join(name), folder.path().join(name))
            .unwrap();
    }
    let certificates = Certificates::load(
        folder.path().join("tls.crt"),
        folder.path().join("tls.key"),
        Duration::from_millis(5),
    );
    let certificates = Arc::new(certificates.unwrap());
    certificates.watch(&tasks);
    let addr = serve(&certificates, &tasks);
    connect(addr, &first.der, &[]).await.unwrap();

    let swapped = folder.path().join("..data_tmp");
    std::os::unix::fs::symlink(second.folder.path(), &swapped).unwrap();
    std::fs::rename(&swapped, &data).unwrap();
    let served = async { while connect(addr, &second.der, &[]).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(20), served).await.expect("reloaded");
    assert!(tasks.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn sighup_reloads_at_once() {
    let (mut files, tasks) = (Files::new(), Tasks::default());
    let certificates = Arc::new(files.load().unwrap());
    let addr = serve(&certificates, &tasks);
    certificates.watch(&tasks);
    // The task's first turn takes the signal over, which would end this process otherwise.
    tokio::task::yield_now().await;
    files.replace();
    let this = std::process::id().to_string();
    let sent = std::process::Command::new("kill").args(["-HUP", &this]).status().unwrap();
    assert!(sent.success());
    let served = async { while connect(addr, &files.der, &[]).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(20), served).await.expect("reloaded");
}

#[tokio::test]
async fn plain_http_on_a_tls_port_and_silence_end_the_connection() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (files, tasks) = (Files::new(), Tasks::default());
    let certificates = Arc::new(files.load().unwrap());
    let listener = listen::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
    let addr = listener.local_addr().unwrap();
    let limits =
        crate::Limits { handshake_timeout: Duration::from_millis(20), ..crate::Limits::default() };
    let options = Options { tls: Some(certificates), limits, ..Options::default() };
    listen::serve(listener, options, &tasks, |_request, _peer| async { unreachable!() }).unwrap();
    for said in [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], b""] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(said).await.unwrap();
        let mut answer = Vec::new();
        // An alert or nothing, then the end or a reset.
        let _end = stream.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_cause() {
    let mut files = Files::new();
    let raw = |certificate: &str, key: &str| RawTls {
        certificate: certificate.into(),
        key: key.into(),
        reload: reload(),
    };
    let base = files.folder.path().to_owned();
    assert!(raw("tls.crt", "tls.key").load(&base, "listen.tls").is_ok());
    std::fs::write(files.path("other.key"), made().1).unwrap();
    std::fs::write(files.path("empty"), "").unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(files.path("broken.crt"), broken).unwrap();
    for (certificate, key, at, said) in [
        ("absent", "tls.key", "certificate", "cannot read"),
        ("tls.crt", "absent", "key", "cannot read"),
        (".", "tls.key", "certificate", "it is no file"),
        ("/dev/zero", "tls.key", "certificate", "it is no file"),
        ("empty", "tls.key", "certificate", "no certificate in PEM form"),
        ("tls.key", "tls.key", "certificate", "no certificate in PEM form"),
        ("tls.crt", "empty", "key", "no private key in PEM form"),
        ("tls.crt", "tls.crt", "key", "no private key in PEM form"),
        ("tls.crt", "other.key", "key", "is no key for"),
        ("broken.crt", "tls.key", "key", "is no key for"),
    ] {
        let problem = raw(certificate, key).load(&base, "listen.tls").unwrap_err();
        assert_eq!(problem.key, format!("listen.tls.{at}"), "{certificate} {key}");
        assert!(problem.problem.contains(said), "{certificate} {key}: {}", problem.problem);
        let file = if at == "key" { key } else { certificate };
        assert!(problem.problem.contains(file), "{}", problem.problem);
    }
    files.replace();
    let hasty = RawTls { reload: Span::millis(1), ..raw("tls.crt", "tls.key") };
    assert_eq!(hasty.load(&base, "listen.tls").unwrap_err().key, "listen.tls.reload");
}
