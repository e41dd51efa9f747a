//! Which process gets which configuration, and what the table says of them.

use std::{net::SocketAddr, time::Duration};

use http::Uri;
use midspan_router::FleetStatus;

use super::Args;
use crate::fetch;

/// The fleet under construction: addresses are known as processes come up.
pub(super) struct Layout {
    bundle: String,
    policy: String,
    port: u16,
    admin_port: u16,
    /// The model that is served.
    pub(super) model: String,
    pub(super) cloud_addr: Option<SocketAddr>,
    /// The emulated link's near end.
    pub(super) link_addr: Option<SocketAddr>,
    pub(super) edges: Vec<(&'static str, SocketAddr)>,
}

/// How long the fleet may take to find itself.
const SETTLE: Duration = Duration::from_secs(30);

impl Layout {
    pub(super) fn new(args: &Args) -> Self {
        let folder = args.bundle.as_ref().map(|path| {
            // Children run in this folder too, but their configuration does not live here.
            std::fs::canonicalize(path).unwrap_or_else(|_| path.clone()).display().to_string()
        });
        let opened = match &args.bundle {
            Some(path) => midspan_split::Bundle::open(path),
            None => midspan_split::Bundle::embedded(),
        };
        let model = opened.map(|bundle| bundle.manifest().name.clone()).unwrap_or_default();
        Self {
            bundle: folder.unwrap_or_else(|| "embedded".into()),
            policy: args.policy.clone(),
            port: args.port,
            admin_port: args.admin_port,
            model,
            cloud_addr: None,
            link_addr: None,
            edges: Vec::new(),
        }
    }

    fn node(&self, name: &str, role: &str) -> toml::Table {
        let mut table = toml::Table::new();
        table.insert("name".into(), name.into());
        table.insert("role".into(), role.into());
        let region = if role == "cloud" { "cloud" } else { "site" };
        table.insert("region".into(), region.into());
        let listen = toml::Table::from_iter([("address".to_owned(), "127.0.0.1:0".into())]);
        table.insert("listen".into(), listen.into());
        let model = toml::Table::from_iter([("bundle".to_owned(), self.bundle.clone().into())]);
        table.insert("model".into(), toml::Value::Array(vec![model.into()]));
        table
    }

    pub(super) fn cloud(&self) -> toml::Table {
        self.node("cloud", "cloud")
    }

    pub(super) fn edge(&self, name: &str) -> toml::Table {
        let mut table = self.node(name, "edge");
        if let Some(addr) = self.link_addr.or(self.cloud_addr) {
            let cloud = toml::Table::from_iter([
                ("address".to_owned(), addr.to_string().into()),
                ("region".to_owned(), "cloud".into()),
            ]);
            table.insert("cloud".into(), toml::Value::Array(vec![cloud.into()]));
        }
        table
    }

    pub(super) fn router(&self) -> toml::Table {
        let node = |(name, addr): &(&str, SocketAddr)| {
            toml::Value::Table(toml::Table::from_iter([
                ("name".to_owned(), (*name).into()),
                ("address".to_owned(), addr.to_string().into()),
                ("region".to_owned(), "site".into()),
            ]))
        };
        let listen = [
            ("apps".to_owned(), format!("127.0.0.1:{}", self.port).into()),
            ("admin".to_owned(), format!("127.0.0.1:{}", self.admin_port).into()),
        ];
        let policy = toml::Table::from_iter([("name".to_owned(), self.policy.clone().into())]);
        toml::Table::from_iter([
            ("region".to_owned(), "site".into()),
            ("listen".to_owned(), toml::Table::from_iter(listen).into()),
            ("policy".to_owned(), policy.into()),
            ("node".to_owned(), toml::Value::Array(self.edges.iter().map(node).collect())),
        ])
    }

    /// Waits until the router has heard of every edge's models and every edge of the cloud.
    pub(super) async fn settled(&self) -> bool {
        let Ok(admin) = format!("http://127.0.0.1:{}", self.admin_port).parse::<Uri>() else {
            return false;
        };
        let polling = async {
            loop {
                if let Ok(status) = fetch::document::<FleetStatus>(&admin, "/nodes").await
                    && status.nodes.iter().all(|node| {
                        let cloud = node.clouds.first();
                        let cloud_up = cloud.is_some_and(|cloud| cloud.rtt_us > 0);
                        !node.models.is_empty() && (cloud_up || node.clouds.is_empty())
                    })
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(SETTLE, polling).await.is_ok()
    }

    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let addr = |addr: Option<SocketAddr>| addr.map_or("-".into(), |addr| addr.to_string());
        let mut rows = vec![vec![
            "router".to_owned(),
            "router".to_owned(),
            format!("127.0.0.1:{}", self.port),
            format!("policy {}; admin 127.0.0.1:{}", self.policy, self.admin_port),
        ]];
        for (name, edge) in &self.edges {
            let runs = format!("{}: front and early exit", self.model);
            rows.push(vec![(*name).into(), "edge".into(), addr(Some(*edge)), runs]);
        }
        let runs = format!("{}: all stages", self.model);
        rows.push(vec!["cloud".into(), "cloud".into(), addr(self.cloud_addr), runs]);
        if self.link_addr.is_some() {
            let runs = "edges reach the cloud through it".to_owned();
            rows.push(vec!["uplink".into(), "link".into(), addr(self.link_addr), runs]);
        }
        rows
    }
}
