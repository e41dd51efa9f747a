//! A router or a node as a process of its own: started, asked, measured, stopped.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use midspan_router::FleetStatus;

use crate::{eventually, raw::Raw, sockets::Open, stub::Stub};

/// One process; dropping it kills it.
pub(crate) struct Process {
    child: Child,
    /// Closing it drains the process.
    _stdin: Option<ChildStdin>,
    pub(crate) addr: SocketAddr,
    /// The admin port, if it told one.
    pub(crate) admin: Option<SocketAddr>,
    _folder: tempfile::TempDir,
}

impl Process {
    fn start(command: &str, config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        fs::write(&path, config).expect("a file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_midspan"))
            .env("MIDSPAN_LOG", "error")
            .args([command, "--until-stdin-closes", "--config"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let after = |word: &str| {
            let (_, rest) = line.split_once(word)?;
            rest.split_whitespace().next()?.parse().ok()
        };
        let addr = after("listening on ").unwrap_or_else(|| panic!("no address in '{line}'"));
        Self { child, _stdin: stdin, addr, admin: after("admin "), _folder: folder }
    }

    /// A router in front of `stub`, that speaks `protocol` (`h1` or `h2`) to it. One thread serves,
    /// so that an answer of it says that the thread which moves a body had its turn.
    pub(crate) async fn router(stub: &Stub, protocol: &str) -> Self {
        Self::router_with(stub, protocol, "128MiB").await
    }

    /// The same with another bound of bodies.
    pub(crate) async fn router_with(stub: &Stub, protocol: &str, body: &str) -> Self {
        let process = Self::start(
            "router",
            &format!(
                "[listen]\napps = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 1\n\
                 [limits]\nbody = \"{body}\"\ndeadline = \"50s\"\n\
                 [probe]\ninterval = \"250ms\"\ntimeout = \"10s\"\n\
                 [[node]]\nname = \"stub\"\naddress = \"{}\"\nprotocol = \"{protocol}\"\n",
                stub.addr
            ),
        );
        eventually("the router knows its node", async || {
            let status = process.status().await;
            let node = status.nodes.first()?;
            let knows = node.health == "healthy" && !node.models.is_empty();
            (!knows).then(|| format!("{node:?}"))
        })
        .await;
        process
    }

    /// A node with the embedded model, one worker and no cloud; `queue` runs may wait.
    pub(crate) fn node(queue: usize) -> Self {
        midspan_runtime::test_support::library();
        Self::start(
            "node",
            &format!(
                "name = \"edge\"\nworkers = 1\n[listen]\naddress = \"127.0.0.1:0\"\n\
                 [limits]\nbody = \"1MiB\"\ndeadline = \"50s\"\nqueue = {queue}\n\
                 [[model]]\nbundle = \"embedded\"\n"
            ),
        )
    }

    /// A connection to the apps' port.
    pub(crate) async fn connect(&self) -> Raw {
        Raw::connect(self.addr).await
    }

    async fn ask(&self, path: &str) -> Vec<u8> {
        let mut admin = Raw::connect(self.admin.expect("an admin port")).await;
        let answer = admin.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        answer.body
    }

    /// `/nodes` of a router.
    pub(crate) async fn status(&self) -> FleetStatus {
        serde_json::from_slice(&self.ask("/nodes").await).expect("the router's status")
    }

    /// The sum of a metric's samples.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = String::from_utf8(self.ask("/metrics").await).expect("text");
        let samples = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']))
        });
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    fn proc(&self, file: &str) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(file)
    }

    fn kilobytes(&self, key: &str) -> usize {
        let text = fs::read_to_string(self.proc("status")).expect("its status");
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
        number.unwrap_or_else(|| panic!("no {key} in {text}"))
    }

    /// Resident memory now, bytes.
    pub(crate) fn resident(&self) -> usize {
        self.kilobytes("VmRSS:") * 1024
    }

    /// The most that was resident since [`Self::reset_peak`], bytes.
    pub(crate) fn peak(&self) -> usize {
        self.kilobytes("VmHWM:") * 1024
    }

    /// Begins a new peak.
    pub(crate) fn reset_peak(&self) {
        fs::write(self.proc("clear_refs"), "5").expect("a process of our own");
    }

    /// Its connections.
    pub(crate) fn open(&self) -> Open {
        Open::of(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
