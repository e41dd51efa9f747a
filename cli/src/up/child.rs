//! One child process: started, kept alive, drained. It ends when its standard input closes, so it
//! cannot outlive this program.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use midspan_net::Tasks;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::{oneshot, watch},
};

/// A child that lives shorter than this has failed to start.
const SHORT_LIFE: Duration = Duration::from_secs(2);
/// So many short lives in a row end the whole. A child that was killed has not failed: it is
/// started again however often.
const MAX_SHORT_LIVES: u32 = 5;
/// Time for a child to come up, models loaded.
const START: Duration = Duration::from_secs(60);
/// Time for a child to drain.
const DRAIN: Duration = Duration::from_secs(12);

/// Keeps one child process alive.
pub(super) struct Supervisor {
    /// Where the child listens, the same after every restart.
    pub(super) addr: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: watch::Receiver<Option<String>>,
    name: String,
}

struct Running {
    child: Child,
    stdin: ChildStdin,
    addr: SocketAddr,
    since: Instant,
}

impl Supervisor {
    /// Writes `config` into `folder`, starts `midspan <command>` with it and waits until it
    /// listens. From the second start on the child is given the address of its first.
    pub(super) async fn start(
        command: &'static str,
        name: &str,
        folder: &Path,
        mut config: toml::Table,
        tasks: &Tasks,
    ) -> anyhow::Result<Self> {
        let path = folder.join(format!("{name}.toml"));
        fs::write(&path, toml::to_string(&config)?)?;
        let running = spawn(command, name, &path).await?;
        let addr = running.addr;
        if let Some(listen) = config.get_mut("listen").and_then(toml::Value::as_table_mut)
            && listen.contains_key("address")
        {
            listen.insert("address".into(), addr.to_string().into());
            fs::write(&path, toml::to_string(&config)?)?;
        }
        let (stop, stopping) = oneshot::channel();
        let (report, ended) = watch::channel(None);
        let name = name.to_owned();
        let child_name = name.clone();
        tasks.spawn(async move {
            let problem = keep_alive(command, &child_name, &path, running, stopping).await;
            let _nobody = report.send(Some(problem.unwrap_or_default()));
        });
        Ok(Self { addr, stop, ended, name })
    }

    /// Resolves when the child cannot be kept alive.
    pub(super) async fn failed(&self) -> anyhow::Error {
        let mut ended = self.ended.clone();
        let problem = ended.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        anyhow::anyhow!("{}: {}", self.name, problem.unwrap_or_else(|| "it is gone".into()))
    }

    /// Drains the child and waits for its end.
    pub(super) async fn stop(mut self) {
        let _ended = self.stop.send(());
        let _gone = self.ended.wait_for(Option::is_some).await;
    }
}

/// Restarts the child whenever it ends by itself; returns why it gave up, or nothing after a stop.
async fn keep_alive(
    command: &'static str,
    name: &str,
    path: &Path,
    mut running: Running,
    mut stopping: oneshot::Receiver<()>,
) -> Option<String> {
    let mut short_lives = 0;
    loop {
        let status = tokio::select! {
            biased;
            _stop = &mut stopping => {
                drain(running).await;
                return None;
            }
            status = running.child.wait() => status,
        };
        let killed = status.as_ref().is_ok_and(|status| status.code().is_none());
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let short = !killed && running.since.elapsed() < SHORT_LIFE;
        short_lives = if short { short_lives + 1 } else { 0 };
        if short_lives >= MAX_SHORT_LIVES {
            return Some(format!("ended {short_lives} times right after its start ({status})"));
        }
        crate::say(format_args!("{name} ended ({status}); starting it again"));
        running = match spawn(command, name, path).await {
            Ok(running) => running,
            Err(error) => return Some(format!("{error:#}")),
        };
    }
}

async fn drain(mut running: Running) {
    drop(running.stdin);
    if tokio::time::timeout(DRAIN, running.child.wait()).await.is_err() {
        let _gone = running.child.kill().await;
    }
}

async fn spawn(command: &str, name: &str, path: &Path) -> anyhow::Result<Running> {
    let program = std::env::current_exe().context("this program's own path")?;
    let mut child = Command::new(program);
    child
        .args([command, "--until-stdin-closes", "--config"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C in the terminal is for the parent, which drains its children in order.
        .process_group(0)
        .kill_on_drop(true);
    if std::env::var_os("MIDSPAN_LOG").is_none() {
        child.env("MIDSPAN_LOG", "error");
    }
    let since = Instant::now();
    let mut child = child.spawn().with_context(|| format!("{name} cannot be started"))?;
    let stdin = child.stdin.take().context("no pipe to the child")?;
    let stdout = child.stdout.take().context("no pipe from the child")?;
    let mut lines = BufReader::new(stdout).lines();
    let first = tokio::time::timeout(START, lines.next_line()).await;
    let first = first.with_context(|| format!("{name} did not come up within {START:?}"))??;
    let Some(line) = first else {
        let status = child.wait().await?;
        bail!("{name} did not start ({status}); its own message is above");
    };
    let addr = line.split_once("listening on ").and_then(|(_, rest)| rest.split(' ').next());
    let addr = addr.and_then(|addr| addr.parse().ok());
    let addr = addr.with_context(|| format!("{name} said '{line}' instead of its address"))?;
    Ok(Running { child, stdin, addr, since })
}
