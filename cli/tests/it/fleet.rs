//! A fleet of real processes for a test: one cloud, two edges, one router, the uplink emulated in
//! the test's own process. Ports are the system's choice; a restarted process keeps its own.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use http::{Method, Uri};
use midspan_load::{
    emulator::{Link, LinkSpec},
    live::{LiveOptions, Run, run},
    workload::{BodyForm, Labelled, Workload},
};
use midspan_router::FleetStatus;
use midspan_split::Bundle;
use tokio_util::sync::CancellationToken;

/// The program under test.
pub(crate) fn midspan() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_midspan"));
    command.env("MIDSPAN_LOG", "error");
    command
}

/// One process of the fleet.
pub(crate) struct Process {
    child: Child,
    /// Closing it drains the process.
    _stdin: Option<ChildStdin>,
    pub(crate) addr: SocketAddr,
    command: &'static str,
    path: PathBuf,
}

impl Process {
    pub(crate) fn start(command: &'static str, path: PathBuf) -> Self {
        let mut child = midspan()
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
        let addr =
            line.split_once("listening on ").and_then(|(_, rest)| rest.split_whitespace().next());
        let addr = addr.unwrap_or_else(|| panic!("no address in '{line}' from {}", path.display()));
        Self { child, _stdin: stdin, addr: addr.parse().expect("an address"), command, path }
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is gone");
    }

    /// Starts again on the same address.
    pub(crate) fn restart(&mut self) {
        let text = fs::read_to_string(&self.path).expect("its configuration");
        let text = text.replace("127.0.0.1:0", &self.addr.to_string());
        fs::write(&self.path, text).expect("its configuration");
        *self = Self::start(self.command, self.path.clone());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The whole fleet.
pub(crate) struct Fleet {
    /// A test may take it out, to kill it while the fleet is driven.
    pub(crate) cloud: Option<Process>,
    pub(crate) edges: Vec<Process>,
    pub(crate) router: Process,
    pub(crate) admin: Uri,
    pub(crate) link: Link,
    _folder: tempfile::TempDir,
}

impl Fleet {
    /// Starts everything and waits until the router knows its nodes and the edges their cloud.
    pub(crate) async fn start(uplink: LinkSpec) -> Self {
        midspan_runtime::test_support::library();
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: String| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("a file");
            path
        };
        let node = |name: &str, role: &str, rest: &str| {
            format!(
                "name = \"{name}\"\nrole = \"{role}\"\nworkers = 2\n[listen]\naddress = \"127.0.0.1:0\"\n\
                 [[model]]\nbundle = \"embedded\"\n{rest}"
            )
        };
        let cloud = Process::start("node", write("cloud.toml", node("cloud", "cloud", "")));
        let near = SocketAddr::from(([127, 0, 0, 1], 0));
        let link = Link::bind(near, cloud.addr, uplink).await.expect("a link");
        let to_cloud = format!("[[cloud]]\naddress = \"{}\"\n", link.local_addr());
        let edges: Vec<Process> = ["edge-a", "edge-b"]
            .iter()
            .map(|name| {
                let text = node(name, "edge", &to_cloud);
                Process::start("node", write(&format!("{name}.toml"), text))
            })
            .collect();
        // The admin port must be known beforehand: a free one now is almost surely free then.
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let admin = free.local_addr().expect("its address");
        drop(free);
        let listed: String = edges
            .iter()
            .zip(["edge-a", "edge-b"])
            .map(|(edge, name)| {
                format!("[[node]]\nname = \"{name}\"\naddress = \"{}\"\n", edge.addr)
            })
            .collect();
        let text = format!(
            "[listen]\napps = \"127.0.0.1:0\"\nadmin = \"{admin}\"\n[probe]\ninterval = \"100ms\"\n{listed}"
        );
        let router = Process::start("router", write("router.toml", text));
        let admin = format!("http://{admin}").parse().expect("a URL");
        let fleet = Self { cloud: Some(cloud), edges, router, admin, link, _folder: folder };
        fleet
            .until("the fleet has settled", |status| {
                status.nodes.iter().all(|node| {
                    node.health == "healthy"
                        && !node.models.is_empty()
                        && node.clouds.iter().all(|cloud| cloud.rtt_us > 0)
                })
            })
            .await;
        fleet
    }

    pub(crate) fn cloud(&mut self) -> &mut Process {
        self.cloud.as_mut().expect("nobody took it")
    }

    pub(crate) fn endpoint(&self) -> Uri {
        format!("http://{}", self.router.addr).parse().expect("a URL")
    }

    pub(crate) async fn status(&self) -> FleetStatus {
        let uri = format!("{}nodes", self.admin).parse().expect("a URL");
        let patience = Duration::from_secs(10);
        midspan_net::client::get_json(&uri, patience).await.expect("the router's status")
    }

    /// Waits until the router's status is as wanted, at most a minute.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&FleetStatus) -> bool) {
        let mut last = None;
        let polling = async {
            loop {
                let status = self.status().await;
                if wanted(&status) {
                    return;
                }
                last = Some(status);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let done = tokio::time::timeout(Duration::from_secs(60), polling).await;
        assert!(done.is_ok(), "{what}: {last:?}");
    }

    /// Sends labelled images through the router; `progress` sees every finished request.
    pub(crate) async fn drive(
        &self,
        requests: usize,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Run {
        let options = LiveOptions::new(self.endpoint(), "fashion");
        let workload = Arc::new(workload(requests));
        run(workload, &options, progress, &CancellationToken::new()).await.expect("a run")
    }
}

pub(crate) fn workload(requests: usize) -> Workload {
    let bundle = Bundle::embedded().expect("the bundle");
    let samples = bundle.labelled().expect("its samples").expect("some");
    let set = Labelled::of_samples(&samples, "image");
    Workload::new(&set, requests, 1, BodyForm::Binary).expect("a workload")
}

/// Something that happens while a fleet is driven: `act` runs on a thread of its own each time
/// that `every` more requests are finished, so the driver never waits for it.
pub(crate) struct Meanwhile {
    every: usize,
    next: AtomicUsize,
    sender: Sender<()>,
    thread: JoinHandle<usize>,
}

impl Meanwhile {
    pub(crate) fn each<F: FnMut(usize) + Send + 'static>(every: usize, mut act: F) -> Self {
        let (sender, events) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut count = 0;
            for () in events {
                count += 1;
                act(count);
            }
            count
        });
        Self { every, next: AtomicUsize::new(every), sender, thread }
    }

    /// For the driver's progress callback.
    pub(crate) fn progress(&self, done: usize) {
        if done >= self.next.load(Ordering::Relaxed) {
            self.next.fetch_add(self.every, Ordering::Relaxed);
            self.sender.send(()).expect("the thread lives");
        }
    }

    /// Waits for what is under way; says how often something happened.
    pub(crate) fn finish(self) -> usize {
        drop(self.sender);
        self.thread.join().expect("no panic")
    }
}

/// One request to a process; body of the answer.
pub(crate) async fn fetch(method: Method, addr: SocketAddr, path: &str) -> Vec<u8> {
    let uri = format!("http://{addr}{path}").parse().expect("a URL");
    let patience = Duration::from_secs(10);
    let body = midspan_net::client::fetch(method, &uri, bytes::Bytes::new(), patience).await;
    body.expect("an answer").to_vec()
}

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}
