//! Places and regions. Decides how far two places are apart and what round
//! trip to assume when none was measured; never overrides a measurement.

use core::fmt;

use crate::units::{Metres, Micros, OutOfRange};

/// Mean radius of the Earth, metres (IUGG).
const EARTH_RADIUS: f64 = 6_371_008.8;
/// Round trip per kilometre: light in fibre needs 10 us there and back, and
/// cables detour by about half.
const MICROS_PER_KM: u64 = 15;
/// Round trip left at distance zero: last mile, switches, kernel.
const MICROS_BASE: u64 = 1_000;

/// A latitude or longitude that is not on the globe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BadPlace {
    /// The latitude given, degrees.
    pub lat: f64,
    /// The longitude given, degrees.
    pub lon: f64,
}

impl fmt::Display for BadPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lat, lon } = self;
        write!(f, "no such place: latitude {lat} (-90..=90), longitude {lon} (-180..=180)")
    }
}

impl core::error::Error for BadPlace {}

/// A point on the globe, degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    lat: f64,
    lon: f64,
}

impl Place {
    /// A place from degrees north and degrees east.
    ///
    /// # Errors
    /// When a coordinate is not finite or outside its range.
    pub fn new(lat: f64, lon: f64) -> Result<Self, BadPlace> {
        let ok = (-90.0..=90.0).contains(&lat) && (-180.0..=180.0).contains(&lon);
        if ok { Ok(Self { lat, lon }) } else { Err(BadPlace { lat, lon }) }
    }

    /// Degrees north.
    pub fn lat(self) -> f64 {
        self.lat
    }

    /// Degrees east.
    pub fn lon(self) -> f64 {
        self.lon
    }

    /// Great-circle distance (haversine).
    pub fn distance(self, other: Self) -> Metres {
        let half = |a: f64, b: f64| libm::sin((b - a).to_radians() / 2.0);
        let (dlat, dlon) = (half(self.lat, other.lat), half(self.lon, other.lon));
        let cos = libm::cos(self.lat.to_radians()) * libm::cos(other.lat.to_radians());
        let h = (dlat * dlat + cos * dlon * dlon).clamp(0.0, 1.0);
        Metres(libm::round(2.0 * EARTH_RADIUS * libm::asin(libm::sqrt(h))) as u64)
    }

    /// The round trip to assume between two places when none was measured.
    pub fn rtt_prior(self, other: Self) -> Micros {
        Micros(MICROS_BASE + self.distance(other).0 * MICROS_PER_KM / 1_000)
    }

    /// The one-degree cell that holds this place, stable across releases: an
    /// ingredient of affinity keys.
    pub fn cell(self) -> u32 {
        let row = libm::floor(self.lat + 90.0).min(179.0) as u32;
        let col = libm::floor(self.lon + 180.0).min(359.0) as u32;
        row * 360 + col
    }
}

/// A region, numbered by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(u16);

impl RegionId {
    /// How many regions can be told apart.
    pub const COUNT: u16 = 256;
    pub(crate) const ZERO: Self = Self(0);

    /// A region's number.
    ///
    /// # Errors
    /// When it is [`RegionId::COUNT`] or more.
    pub const fn new(id: u16) -> Result<Self, OutOfRange> {
        if id >= Self::COUNT {
            return Err(OutOfRange {
                what: "region id",
                got: id as u64,
                min: 0,
                max: Self::COUNT as u64 - 1,
            });
        }
        Ok(Self(id))
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// A set of regions: where a request may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionSet([u64; 4]);

impl RegionSet {
    /// Anywhere.
    pub const ALL: Self = Self([u64::MAX; 4]);
    /// Nowhere.
    pub const NONE: Self = Self([0; 4]);

    /// The set of the given regions.
    pub fn of(regions: impl IntoIterator<Item = RegionId>) -> Self {
        regions.into_iter().fold(Self::NONE, Self::with)
    }

    /// This set and one more region.
    #[must_use]
    pub fn with(mut self, region: RegionId) -> Self {
        self.0[usize::from(region.0 / 64)] |= 1 << (region.0 % 64);
        self
    }

    /// What both sets allow.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Whether the region is in the set.
    pub fn contains(self, region: RegionId) -> bool {
        self.0[usize::from(region.0 / 64)] >> (region.0 % 64) & 1 == 1
    }

    /// Whether nothing is allowed.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// The set as 256 bits, region 0 lowest.
    pub const fn bits(self) -> [u64; 4] {
        self.0
    }

    /// The set from its bits.
    pub const fn from_bits(bits: [u64; 4]) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(lat: f64, lon: f64) -> Place {
        Place::new(lat, lon).unwrap()
    }

    #[test]
    fn places_off_the_globe_are_refused() {
        for (lat, lon) in [(90.1, 0.0), (0.0, -180.5), (f64::NAN, 0.0), (0.0, f64::INFINITY)] {
            assert!(Place::new(lat, lon).is_err(), "{lat} {lon}");
        }
    }

    #[test]
    fn distances_agree_with_the_atlas() {
        let (paris, new_york) = (place(48.8566, 2.3522), place(40.7128, -74.0060));
        let km = paris.distance(new_york).0 / 1_000;
        assert!((5_830..=5_845).contains(&km), "{km}");
        assert_eq!(paris.distance(paris), Metres(0));
        let half_way = place(0.0, 0.0).distance(place(0.0, 180.0)).0 / 1_000;
        assert!((20_014..=20_016).contains(&half_way), "{half_way}");
        assert_eq!(paris.rtt_prior(paris), Micros(1_000));
    }

    #[test]
    fn cells_cover_the_corners() {
        assert_eq!(place(-90.0, -180.0).cell(), 0);
        assert_eq!(place(90.0, 180.0).cell(), 180 * 360 - 1);
        assert_ne!(place(48.8, 2.3).cell(), place(48.8, 3.3).cell());
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let id = |n| RegionId::new(n).unwrap();
        let set = RegionSet::of([id(0), id(64), id(255)]);
        assert!(set.contains(id(0)) && set.contains(id(64)) && set.contains(id(255)));
        assert!(!set.contains(id(1)) && RegionId::new(256).is_err());
        assert!(set.and(RegionSet::of([id(1)])).is_empty());
        assert_eq!(RegionSet::from_bits(set.bits()), set);
    }
}
