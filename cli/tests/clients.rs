//! Clients that others wrote, unchanged, at a node and through a router. Each test starts real
//! processes and runs one script of `tests/clients` against them, in a virtual environment that is
//! installed once. The scripts judge; this file installs, starts and shows what they said.

#![expect(clippy::expect_used, reason = "a failed expectation is the test's report")]

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use midspan_router::FleetStatus;

#[tokio::test(flavor = "multi_thread")]
async fn tritonclient_over_http() {
    let locked = Fleet::start(Control::Off).await;
    locked.run("triton_http.py", &[]);
    let node = locked.nodes[0].addr.to_string();
    Fleet::start(Control::On).await.run("triton_models.py", &["--locked".as_ref(), node.as_ref()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tritonclient_over_grpc() {
    Fleet::start(Control::On).await.run("triton_grpc.py", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tritonclient_under_asyncio() {
    Fleet::start(Control::Off).await.run("triton_aio.py", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tritonclient_over_tls() {
    let (fleet, root) = Fleet::encrypted().await;
    fleet.run("triton_tls.py", &["--root".as_ref(), root.as_ref()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_kserve() {
    Fleet::start(Control::Off).await.run("kserve_sdk.py", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_generated_from_the_protocol() {
    Fleet::start(Control::Off).await.run("open_inference_clients.py", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_generated_from_the_openapi_document() {
    Fleet::start(Control::Off).await.run("fuzz_openapi.py", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_in_a_browser() {
    let Some(browser) = chromium() else {
        return say("SKIPPED: no Chromium, no page; install one: apt-get install chromium");
    };
    let fleet = Fleet::start(Control::Off).await;
    fleet.run("browser.py", &["--browser".as_ref(), browser.as_ref()]);
}

/// Whether clients may load and unload models.
#[derive(Clone, Copy, PartialEq)]
enum Control {
    On,
    Off,
}

impl Control {
    /// Its line in a configuration.
    fn line(self) -> &'static str {
        if self == Self::On { "model_control = true\n" } else { "" }
    }
}

/// Two nodes with every model of `tests/clients/models`, and a router in front of both.
struct Fleet {
    nodes: [Process; 2],
    router: Process,
    _folder: tempfile::TempDir,
}

impl Fleet {
    async fn start(control: Control) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let nodes = ["node-a", "node-b"].map(|name| node(folder.path(), name, control, ""));
        let router = router(folder.path(), "router", control, "", &nodes).await;
        Self { nodes, router, _folder: folder }
    }

    /// A node with TLS, and a router with TLS in front of another node, which has none; and the
    /// file of the certificate.
    async fn encrypted() -> (Self, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
        let made = made.expect("a certificate");
        let (root, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        fs::write(&root, made.cert.pem()).expect("a file");
        fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
        let tls = "[listen.tls]\ncertificate = \"tls.crt\"\nkey = \"tls.key\"\n";
        let nodes = [("node-a", tls), ("node-b", "")]
            .map(|(name, tls)| node(folder.path(), name, Control::Off, tls));
        let router = router(folder.path(), "router", Control::Off, tls, &nodes[1..]).await;
        (Self { nodes, router, _folder: folder }, root)
    }

    /// Runs a script of `tests/clients` against the first node and the router; it must succeed.
    fn run(&self, script: &str, more: &[&OsStr]) {
        let environment = environment();
        let mut command = Command::new(environment.join("bin").join("python"));
        command.arg(scripts().join(script)).args(more);
        command.arg("--node").arg(self.nodes[0].addr.to_string());
        command.arg("--router").arg(self.router.addr.to_string());
        // Compiled modules stay out of the sources, and no proxy comes between.
        command.env("PYTHONPYCACHEPREFIX", environment.join("compiled"));
        for name in ["PYTHONPATH", "PYTHONHOME", "http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        let output = command.output().expect("Python runs");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{script}: {}\n{said}", output.status);
        eprintln!("{said}");
    }
}

/// A node with every model; `tls` is a table of its configuration, or nothing.
fn node(folder: &Path, name: &str, control: Control, tls: &str) -> Process {
    midspan_runtime::test_support::library();
    let listed: String =
        models().iter().map(|path| format!("[[model]]\nonnx = \"{}\"\n", path.display())).collect();
    let text = format!(
        "name = \"{name}\"\nworkers = 2\n{}[listen]\naddress = \"127.0.0.1:0\"\n{tls}{listed}",
        control.line()
    );
    Process::start("node", folder.join(format!("{name}.toml")), &text)
}

/// A router that knows the models of all `nodes`.
async fn router(
    folder: &Path,
    name: &str,
    control: Control,
    tls: &str,
    nodes: &[Process],
) -> Process {
    // The admin port must be known beforehand: a free one now is almost surely free then.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let admin = free.local_addr().expect("its address");
    drop(free);
    let listed: String = nodes
        .iter()
        .enumerate()
        .map(|(n, node)| format!("[[node]]\nname = \"node-{n}\"\naddress = \"{}\"\n", node.addr))
        .collect();
    let text = format!(
        "{}[listen]\napps = \"127.0.0.1:0\"\nadmin = \"{admin}\"\n{tls}[probe]\n\
         interval = \"100ms\"\n{listed}",
        control.line()
    );
    let router = Process::start("router", folder.join(format!("{name}.toml")), &text);
    knows_its_nodes(admin, models().len()).await;
    router
}

/// Waits until the router has heard of all models from every node.
async fn knows_its_nodes(admin: SocketAddr, models: usize) {
    let uri = format!("http://{admin}/nodes").parse().expect("a URL");
    let asking = async {
        loop {
            let status: FleetStatus = midspan_net::client::get_json(&uri, Duration::from_secs(10))
                .await
                .expect("the router's status");
            let knows = |node: &midspan_router::NodeStatus| {
                node.health == "healthy" && node.models.len() == models
            };
            if status.nodes.iter().all(knows) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("the router is ready");
}

/// One process of the program; killed when dropped.
struct Process {
    child: Child,
    addr: SocketAddr,
}

impl Process {
    fn start(command: &str, path: PathBuf, text: &str) -> Self {
        fs::write(&path, text).expect("a file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_midspan"))
            .env("MIDSPAN_LOG", "error")
            .args([command, "--config"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let addr = line.split_once("listening on ").and_then(|(_, rest)| rest.split(' ').next());
        let addr = addr.and_then(|addr| addr.trim().parse().ok());
        // Held before anything can fail, so that the process ends in any case.
        let mut process = Self { child, addr: SocketAddr::from(([127, 0, 0, 1], 0)) };
        process.addr = addr.unwrap_or_else(|| panic!("no address in '{line}' of {command}"));
        process
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("tests").join("clients")
}

fn models() -> Vec<PathBuf> {
    let folder = fs::read_dir(scripts().join("models")).expect("the models");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension() == Some("onnx".as_ref())).collect()
}

/// The virtual environment that holds the clients, installed first where there is none.
fn environment() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(installed)
}

/// An environment is named for what is in it: a change of the list makes another one. Two test runs
/// at once wait for each other, and what is half installed is never seen.
fn installed() -> PathBuf {
    let list = scripts().join("requirements.txt");
    let version = output(Command::new("python3").arg("--version"));
    let mut hasher = DefaultHasher::new();
    (fs::read(&list).expect("the list"), version).hash(&mut hasher);
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = base.join(format!("clients-venv-{:016x}", hasher.finish()));
    let _lock = locked("clients-venv");
    if folder.exists() {
        return folder;
    }
    say("installing clients of the protocol from PyPI, once: 60 MB, about half a minute ...");
    let made = tempfile::Builder::new().prefix("clients-venv-").tempdir_in(base);
    let made = made.expect("a folder");
    output(Command::new("python3").args(["-m", "venv"]).arg(made.path()));
    // Every package is on the list, so pip has nothing to decide.
    let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--requirement"];
    output(Command::new(made.path().join("bin/python")).args(pip).arg(&list));
    fs::rename(made.keep(), &folder).expect("the environment in its place");
    say(&format!("installed into {}", folder.display()));
    folder
}

/// A Chromium; installed where the system is Debian's and this process may. None: there is none.
fn chromium() -> Option<PathBuf> {
    let found = || ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(on_path);
    let _lock = locked("clients-chromium");
    if let Some(browser) = found() {
        return Some(browser);
    }
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let apt = on_path("apt-get")?;
    say("installing Chromium with apt-get, once: 125 MB, about half a minute ...");
    output(Command::new(&apt).args(["update", "-qq"]));
    output(Command::new(&apt).env("DEBIAN_FRONTEND", "noninteractive").args([
        "install",
        "-y",
        "-qq",
        "--no-install-recommends",
        "chromium",
    ]));
    found()
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Held until dropped, by one process and thread at a time.
fn locked(name: &str) -> File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.lock"));
    let file = File::create(path).expect("a lock file");
    file.lock().expect("the lock");
    file
}

/// What a command wrote; it must succeed.
fn output(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
    said
}

/// A line that is seen whether the test passes or not.
fn say(line: &str) {
    let _unseen = writeln!(io::stderr(), "{line}");
}
