//! A way to the sky that FITS can hold, fitted to any other: the gnomonic projection, with the Simple Imaging Polynomial before it
//! (FITS WCS Paper II, section 5.1.3; Shupe et al. 2005).

use std::array;

use super::gwcs::Gwcs;
use super::transform::{times, vector};
use crate::asdf::numbers::unsigned;
use crate::error::{Result, unsupported};

/// The highest degree of the polynomials.
pub(super) const MAX_DEGREE: usize = 5;
/// Terms of a polynomial of that degree in two variables, but for the constant one.
const TERMS: usize = 20;
/// Points along each side of the grid on which the fit is made, and of the one on which it is checked.
const FITTED: u32 = 24;
pub(super) const CHECKED: u32 = 64;
/// Smallest area of a pixel, by the squares of its sides.
const FLAT: f64 = 1e-9;
/// Largest error of a fit that needs no higher degree, in pixels.
const GOOD: f64 = 1e-4;

/// The powers of both variables in each term, by degree.
fn powers() -> [(usize, usize); TERMS] {
    let mut all = (1..).flat_map(|degree: usize| (0..=degree).rev().zip(0..));
    array::from_fn(|_| all.next().unwrap_or_default())
}

/// The powers of a number, from 1 on.
fn powers_of(x: f64) -> [f64; MAX_DEGREE + 1] {
    let mut next = 1.0;
    array::from_fn(|_| {
        let power = next;
        next *= x;
        power
    })
}

fn power(powers: &[f64], of: usize) -> f64 {
    powers.get(of).copied().unwrap_or(f64::NAN)
}

/// How many of the terms a polynomial of that degree has.
fn terms(degree: usize) -> usize {
    degree.saturating_mul(degree.saturating_add(3)) / 2
}

/// A way from pixels to the sky by the gnomonic projection.
#[derive(Debug, Clone)]
pub(super) struct Tangent {
    /// The pixel at which the sky is touched; whole numbers from 0 on are the centres of pixels.
    pub(super) pixel: [f64; 2],
    /// Its longitude and latitude, in degrees.
    pub(super) sky: [f64; 2],
    /// Degrees in the tangent plane by pixel: rows are of the plane, columns of pixels.
    pub(super) matrix: [[f64; 2]; 2],
    /// Degree of the polynomials that are added to the distance from that pixel, and their terms: powers and coefficients of both.
    pub(super) degree: usize,
    pub(super) distortion: Vec<((usize, usize), [f64; 2])>,
}

/// Pixels, each with where it is in the sky or in a plane that touches it, in degrees.
type Points = Vec<([f64; 2], [f64; 2])>;

/// A rectangle of pixels.
#[derive(Clone, Copy)]
pub(super) struct Region {
    /// The first and the last of each coordinate.
    pub(super) sides: [[f64; 2]; 2],
}

impl Region {
    /// The pixels of an image that are within the bounds of a gwcs, by their centres.
    pub(super) fn of(size: [u64; 2], bounds: Option<[[f64; 2]; 2]>) -> Result<Self> {
        let [x, y] = bounds.unwrap_or([[f64::NEG_INFINITY, f64::INFINITY]; 2]);
        let within = |len: u64, [low, high]: [f64; 2]| {
            let last = unsigned(len) - 1.0;
            [low.ceil().max(0.0), high.floor().min(last)]
        };
        let sides = [within(size[0], x), within(size[1], y)];
        if sides.iter().any(|[low, high]| low >= high) {
            let why = "fewer than two rows or columns in the bounding_box";
            return Err(unsupported(why));
        }
        Ok(Self { sides })
    }

    fn middle(self) -> [f64; 2] {
        self.sides.map(|[low, high]| f64::midpoint(low, high))
    }

    fn half(self) -> [f64; 2] {
        self.sides.map(|[low, high]| (high - low) / 2.0)
    }

    /// The pixels of a grid of that many by that many, whose lines are at these parts of each side: from -1 to 1.
    fn grid(self, count: u32, part: impl Fn(u32) -> f64) -> Vec<[f64; 2]> {
        let ([x, y], [right, up], part) = (self.middle(), self.half(), &part);
        let rows = (0..count).flat_map(|j| (0..count).map(move |i| (part(i), part(j))));
        let pixels = rows.map(|(i, j)| [x + right * i, y + up * j]);
        pixels.collect()
    }

    /// The pixels on which a fit is made: more towards the edges, where polynomials err most.
    fn fitted(self) -> Vec<[f64; 2]> {
        // Chebyshev's nodes: on equal steps, polynomials of a high degree swing between the outer ones
        let step = std::f64::consts::PI / f64::from(FITTED);
        self.grid(FITTED, |i| -((f64::from(i) + 0.5) * step).cos())
    }

    /// The pixels on which it is checked, the corners among them.
    fn checked(self) -> Vec<[f64; 2]> {
        let last = f64::from(CHECKED.saturating_sub(1));
        self.grid(CHECKED, |i| 2.0 * f64::from(i) / last - 1.0)
    }
}

impl Gwcs {
    /// Where pixels are in the sky.
    fn points(&self, pixels: &[[f64; 2]]) -> Result<Points> {
        let mut points = Points::with_capacity(pixels.len());
        for pixel in pixels {
            let sky = <[f64; 2]>::try_from(self.transform.apply(pixel)?);
            let sky = sky.map_err(|_| unsupported("a transform to something else"))?;
            points.push((*pixel, sky));
        }
        let is_sky = |[longitude, latitude]: [f64; 2]| {
            longitude.is_finite() && latitude.is_finite() && latitude.abs() <= 90.0
        };
        if let Some(([x, y], _)) = points.iter().find(|(_, at)| !is_sky(*at)) {
            let why = format!("no place in the sky at pixel ({x}, {y})");
            return Err(unsupported(why));
        }
        Ok(points)
    }

    /// The largest distance, in pixels, of a way to the sky from this one.
    pub(super) fn error(&self, tangent: &Tangent, region: Region) -> Result<f64> {
        let points = self.points(&region.checked())?;
        tangent.error(&projected(points, tangent.sky)?)
    }

    /// The best way to the sky that FITS can hold, with its largest error in pixels.
    pub(super) fn fitted(&self, region: Region) -> Result<(Tangent, f64)> {
        let middle = region.middle();
        let centre = self.points(&[middle])?;
        let (_, sky) = *centre.first().ok_or_else(|| unsupported("no centre"))?;
        let fitted = projected(self.points(&region.fitted())?, sky)?;
        let equations = Equations::of(&fitted, region);
        let checked = projected(self.points(&region.checked())?, sky)?;
        let mut best: Option<(Tangent, f64)> = None;
        // a higher degree fits 576 points better, but may swing between them: the check decides
        for degree in 1..=MAX_DEGREE {
            let Some(tangent) = equations.solved(degree, region, sky) else {
                continue;
            };
            let error = tangent.error(&checked)?;
            if best.as_ref().is_none_or(|(_, least)| error < *least) {
                best = Some((tangent, error));
            }
            if error <= GOOD {
                break;
            }
        }
        best.ok_or_else(|| unsupported("pixels that all lie on a line of the sky"))
    }
}

impl Tangent {
    /// The largest distance, in pixels, of the places that it gives pixels from where they are in its plane.
    fn error(&self, points: &Points) -> Result<f64> {
        let inverse = inverse(self.matrix).ok_or_else(|| unsupported("a matrix of no area"))?;
        let mut largest: f64 = 0.0;
        for (pixel, place) in points {
            let wanted = times(&inverse, *place);
            let [x, y] = self.undistorted(*pixel);
            let distance = f64::hypot(wanted[0] - x, wanted[1] - y);
            // not `max`, which passes over NaN
            if !distance.is_finite() {
                return Err(unsupported("numbers without end"));
            }
            largest = largest.max(distance);
        }
        Ok(largest)
    }

    /// A pixel's distance from that at which the sky is touched, without distortion.
    fn undistorted(&self, pixel: [f64; 2]) -> [f64; 2] {
        let [u, v] = [pixel[0] - self.pixel[0], pixel[1] - self.pixel[1]];
        let (us, vs) = (powers_of(u), powers_of(v));
        let all = self.distortion.iter();
        all.fold([u, v], |[x, y], ((p, q), [a, b])| {
            let term = power(&us, *p) * power(&vs, *q);
            [x + a * term, y + b * term]
        })
    }
}

/// The same pixels, with where they are in the plane that touches the sky at `centre` (FITS WCS Paper II, section 5.1.3).
fn projected(mut points: Points, centre: [f64; 2]) -> Result<Points> {
    let (sin, cos) = centre[1].to_radians().sin_cos();
    for (_, place) in &mut points {
        let [x, y, z] = vector([place[0] - centre[0], place[1]]);
        let (east, north, up) = (y, z * cos - x * sin, z * sin + x * cos);
        // what is 90 degrees away is infinitely far in the plane
        if up < 0.01 {
            return Err(unsupported("an image of about half the sky"));
        }
        *place = [(east / up).to_degrees(), (north / up).to_degrees()];
    }
    Ok(points)
}

/// The inverse of a matrix; `None` if it makes a line of a square, or nearly so.
fn inverse([[a, b], [c, d]]: [[f64; 2]; 2]) -> Option<[[f64; 2]; 2]> {
    let area = a * d - b * c;
    let is_plane = area.abs() > FLAT * (a * a + b * b + c * c + d * d);
    let inverse = [[d / area, -b / area], [-c / area, a / area]];
    let is_finite = inverse.as_flattened().iter().all(|n| n.is_finite());
    (is_plane && is_finite).then_some(inverse)
}

/// The normal equations of both coordinates' polynomials of the highest degree; they begin with the terms of all lower degrees.
struct Equations {
    products: [[f64; TERMS]; TERMS],
    sums: [[f64; TERMS]; 2],
}

impl Equations {
    fn of(points: &Points, region: Region) -> Self {
        let (middle, half) = (region.middle(), region.half());
        let mut all = Self {
            products: [[0.0; TERMS]; TERMS],
            sums: [[0.0; TERMS]; 2],
        };
        let powers = powers();
        for (pixel, place) in points {
            // coordinates from -1 to 1: powers of thousands of pixels would leave no digits to the sums
            let xs = powers_of((pixel[0] - middle[0]) / half[0]);
            let ys = powers_of((pixel[1] - middle[1]) / half[1]);
            let row = powers.map(|(p, q)| power(&xs, p) * power(&ys, q));
            for (products, a) in all.products.iter_mut().zip(row) {
                for (product, b) in products.iter_mut().zip(row) {
                    *product += a * b;
                }
            }
            for (sums, coordinate) in all.sums.iter_mut().zip(place) {
                for (sum, a) in sums.iter_mut().zip(row) {
                    *sum += a * coordinate;
                }
            }
        }
        all
    }

    /// The way to the sky whose polynomials have this degree; `None` if the points do not determine it.
    fn solved(&self, degree: usize, region: Region, sky: [f64; 2]) -> Option<Tangent> {
        let count = terms(degree);
        let [east, north] = self.coefficients(count)?;
        let [xs, ys] = region.half().map(powers_of);
        let all = powers().into_iter().zip(east.into_iter().zip(north));
        // back from coordinates between -1 and 1 to pixels
        let mut all = all.map(|((p, q), (east, north))| {
            let scale = power(&xs, p) * power(&ys, q);
            ((p, q), [east / scale, north / scale])
        });
        // the linear terms are the matrix; the others are a distortion before it, and so are divided by it
        let ((_, by_x), (_, by_y)) = (all.next()?, all.next()?);
        let matrix = [[by_x[0], by_y[0]], [by_x[1], by_y[1]]];
        let inverse = inverse(matrix)?;
        let distortion = all.map(|(powers, by)| (powers, times(&inverse, by)));
        Some(Tangent {
            pixel: region.middle(),
            sky,
            matrix,
            degree,
            distortion: distortion.collect(),
        })
    }

    /// The first so many coefficients of both polynomials, by Cholesky's decomposition.
    fn coefficients(&self, count: usize) -> Option<[Vec<f64>; 2]> {
        let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let mut lower: Vec<Vec<f64>> = Vec::new();
        for products in self.products.get(..count)? {
            let mut row = Vec::new();
            for above in &lower {
                let rest = products.get(row.len())? - dot(&row, above);
                row.push(rest / above.last()?);
            }
            let rest = products.get(row.len())? - dot(&row, &row);
            // not above 0, or NaN, where points on a line leave a term open
            row.push(Some(rest.sqrt()).filter(|root| *root > 0.0)?);
            lower.push(row);
        }
        // forwards through the lower triangle, then back through its mirror image
        let solve = |sums: &[f64; TERMS]| {
            let mut middle: Vec<f64> = Vec::new();
            for (row, sum) in lower.iter().zip(sums) {
                middle.push((sum - dot(row, &middle)) / row.last()?);
            }
            let mut found = vec![0.0; count];
            for n in (0..count).rev() {
                let column = lower.iter().map(|row| row.get(n).copied().unwrap_or(0.0));
                let column: Vec<f64> = column.collect();
                let rest = middle.get(n)? - dot(&column, &found);
                *found.get_mut(n)? = rest / column.get(n)?;
            }
            Some(found)
        };
        let [east, north] = &self.sums;
        Some([solve(east)?, solve(north)?])
    }
}

#[cfg(test)]
mod tests {
    use super::super::gwcs::Frame;
    use super::super::transform::{Transform, Wrap, rotations, square};
    use super::*;
    use proptest::prelude::*;

    /// Pixels of 0.1 seconds of arc with a distortion, turned to some place of the sky.
    fn distorted(coefficients: &[f64], side: usize, turn: [f64; 3]) -> Gwcs {
        let polynomial = |at: usize| {
            let own = coefficients.iter().skip(at).step_by(2);
            let mut own: Vec<f64> = own.copied().take(side * side).collect();
            own.resize(side * side, 0.0);
            (own[0], own[1], own[side]) = if at == 0 {
                (0.0, 0.0, 1.0)
            } else {
                (0.0, 1.0, 0.0)
            };
            let own = own.into_iter().map(|number| number * 0.1 / 3600.0 * 500.0);
            let own: Vec<f64> = own.collect();
            Transform::of(move |[x, y]| Ok([square(&own, side, x, y)]))
        };
        let to_unit = || Transform::line(1.0 / 500.0, -1.0);
        let transform = Transform::chain(vec![
            Transform::beside(vec![to_unit(), to_unit()]),
            Transform::remap(vec![0, 1, 0, 1], 2),
            Transform::beside(vec![polynomial(0), polynomial(1)]),
            Transform::rotate_sphere(rotations("xyz", &turn).unwrap(), Wrap::At360),
        ]);
        Gwcs {
            transform: transform.unwrap(),
            bounds: None,
            frame: Frame::Icrs,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn a_fit_is_as_good_as_it_says(
            coefficients in prop::collection::vec(-1.0..1.0, 2 * 49),
            side in 2_usize..8,
            strength in -6.0..0.0_f64,
            turn in [0.0..360.0, -90.0..90.0, 0.0..360.0],
            pixels in prop::collection::vec([0.0..1001.0, 0.0..1001.0], 200),
        ) {
            let scaled: Vec<f64> = coefficients.iter().map(|c| c * 10_f64.powf(strength)).collect();
            let gwcs = distorted(&scaled, side, turn);
            let region = Region::of([1002, 1002], None).unwrap();
            let (tangent, error) = gwcs.fitted(region).unwrap();
            let points = projected(gwcs.points(&pixels).unwrap(), tangent.sky).unwrap();
            let found = tangent.error(&points).unwrap();
            // between the pixels of the grid an error may be a little larger
            prop_assert!(found <= error * 1.1 + 1e-7, "{found} {error}");
            // a polynomial of no higher degree than that is met exactly, but for the curvature of the sphere
            prop_assert!(side > 6 || strength > -3.0 || error < 1e-3, "{error}");
        }
    }
}
