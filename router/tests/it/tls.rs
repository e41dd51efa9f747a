//! An encrypted port for apps.

use std::{io, net::SocketAddr, sync::Arc};

use http::Method;
use midspan_net::{body::empty, transport::Transport};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName},
    },
};

use crate::fixture::{Setup, request};

async fn connect(
    addr: SocketAddr,
    root: CertificateDer<'static>,
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(root).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(addr).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

#[tokio::test]
async fn the_apps_port_speaks_tls_and_the_admin_port_does_not() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let listen = format!("tls = {{ certificate = {certificate:?}, key = {key:?} }}");
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    let router = Setup { listen, ..Setup::default() }.start_cold(&[("a", nowhere)]).await;

    let mut stream = connect(router.apps, made.cert.der().clone()).await.unwrap();
    let get = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(get).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    assert!(router.app.send(request(Method::GET, "/v2/health/live", empty())).await.is_err());
    // As plain HTTP, and the port has counted the connection above.
    let metrics = router.admin("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.body);
    assert!(text.contains("midspan_connections{port=\"apps\"}"), "{text}");
}
