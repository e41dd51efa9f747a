//! The system's table of connections: whose they are, and how many bytes the kernel holds in them.

use std::{collections::HashSet, fs, net::SocketAddr};

/// One end of a connection.
pub(crate) struct End {
    local: u16,
    remote: u16,
    inode: String,
    /// Bytes sent and not yet acknowledged, or received and not yet read.
    queued: usize,
}

impl End {
    fn parse(line: &str) -> Option<Self> {
        const LISTEN: &str = "0A";
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, queues, _, _, _, _, inode, ..] = fields[..] else {
            return None;
        };
        let port = |text: &str| u16::from_str_radix(text.rsplit(':').next()?, 16).ok();
        let (out, into) = queues.split_once(':')?;
        let bytes = |text| usize::from_str_radix(text, 16).ok();
        (state != LISTEN).then_some(Self {
            local: port(local)?,
            remote: port(remote)?,
            inode: inode.to_owned(),
            queued: bytes(out)? + bytes(into)?,
        })
    }

    fn all() -> impl Iterator<Item = Self> {
        let table = fs::read_to_string("/proc/self/net/tcp").expect("the system's connections");
        let ends: Vec<Self> = table.lines().skip(1).filter_map(Self::parse).collect();
        ends.into_iter()
    }
}

/// Connections of a process, counted by which of its ends is at a port.
pub(crate) struct Open(Vec<End>);

impl Open {
    /// What process `pid` has open now.
    pub(crate) fn of(pid: u32) -> Self {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
        let inode = |entry: std::io::Result<fs::DirEntry>| {
            let target = fs::read_link(entry.ok()?.path()).ok()?;
            Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        };
        let own: HashSet<String> = descriptors.filter_map(inode).collect();
        Self(End::all().filter(|end| own.contains(&end.inode)).collect())
    }

    /// Those that were accepted at `addr`'s port.
    pub(crate) fn accepted(&self, addr: SocketAddr) -> usize {
        self.0.iter().filter(|end| end.local == addr.port()).count()
    }

    /// Those that were made to `addr`'s port.
    pub(crate) fn dialled(&self, addr: SocketAddr) -> usize {
        self.0.iter().filter(|end| end.remote == addr.port()).count()
    }
}

/// Bytes in the kernel's buffers, at both ends, of all connections to these servers.
pub(crate) fn queued(servers: [SocketAddr; 2]) -> usize {
    let ports = servers.map(|addr| addr.port());
    let concerned = |end: &End| ports.contains(&end.local) || ports.contains(&end.remote);
    End::all().filter(concerned).map(|end| end.queued).sum()
}
