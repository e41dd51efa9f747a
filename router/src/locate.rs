//! Where the client is: the operator's own header from a proxy that is trusted, else unknown.
//! A place is a prior for distances and a part of the affinity key, never proof of residency.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};
use midspan_net::Peer;
use midspan_router_core::Place;

/// `<latitude>,<longitude>` in degrees, set by a trusted proxy.
const PLACE: HeaderName = HeaderName::from_static("midspan-place");

/// The client's place, if something trustworthy says it. A malformed header from a trusted proxy
/// is logged and ignored: a wrong place must not fail a request.
pub(crate) fn locate(map: &HeaderMap, peer: Peer, trusted: &[IpAddr]) -> Option<Place> {
    let value = map.get(PLACE)?;
    if !trusted.contains(&peer.addr.ip()) {
        return None;
    }
    let place = value.to_str().ok().and_then(parse);
    if place.is_none() {
        tracing::warn!(proxy = %peer.addr.ip(), ?value, "midspan-place is not latitude,longitude");
    }
    place
}

fn parse(text: &str) -> Option<Place> {
    let (lat, lon) = text.split_once(',')?;
    Place::new(lat.trim().parse().ok()?, lon.trim().parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trusted_proxies_are_believed() {
        let mut map = HeaderMap::new();
        map.insert(PLACE, "52.5, 13.4".parse().unwrap());
        let peer = |ip: &str| Peer { addr: format!("{ip}:1").parse().unwrap(), tls: false };
        let trusted = ["10.0.0.1".parse().unwrap()];
        assert!(locate(&map, peer("10.0.0.2"), &trusted).is_none());
        let place = locate(&map, peer("10.0.0.1"), &trusted).unwrap();
        assert!((place.lat() - 52.5).abs() < 1e-9);
        for bad in ["", "1", "91,0", "x,y", "1,2,3"] {
            map.insert(PLACE, bad.parse().unwrap());
            assert!(locate(&map, peer("10.0.0.1"), &trusted).is_none(), "{bad}");
        }
    }
}
