//! The transforms of a gwcs that are known, evaluated for a point (ASDF Transform Schemas 0.6; gwcs 1.0).
//!
//! Angles are in degrees, as astropy's models have them without units. A rotation turns the axes, not the points.

use std::sync::Arc;

use crate::error::{Lasting, Result};

/// A linear map of three coordinates, by rows.
pub(super) type Matrix = [[f64; 3]; 3];

/// Coefficients, which are read when they are first needed: to open a file must not decode a block.
pub(super) type Numbers = Box<dyn Fn() -> Result<Arc<Vec<f64>>> + Send + Sync>;

/// The coefficients that `read` reads, at their first use.
pub(super) fn read_once(read: impl Fn() -> Result<Vec<f64>> + Send + Sync + 'static) -> Numbers {
    let found = Lasting::new();
    Box::new(move || found.get_or_make(|| read().map(Arc::new)).cloned())
}

/// The linear map of one interval to another.
pub(super) fn between(from: [f64; 2], to: [f64; 2]) -> impl Fn(f64) -> f64 {
    let times = (to[1] - to[0]) / (from[1] - from[0]);
    let more = to[0] - from[0] * times;
    move |x| times * x + more
}

/// What becomes of the coordinates of a point.
type Function = Box<dyn Fn(&[f64]) -> Result<Vec<f64>> + Send + Sync>;

/// A transform: how many coordinates it takes and gives, and what becomes of a point.
pub(super) struct Transform {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    function: Function,
}

/// Where longitudes are cut.
#[derive(Clone, Copy)]
pub(super) enum Wrap {
    /// They are from 0 to 360.
    At360,
    /// They are from -180 to 180.
    At180,
}

impl Transform {
    /// A transform of points of so many coordinates to points of so many others.
    pub(super) fn new(
        (inputs, outputs): (usize, usize),
        function: impl Fn(&[f64]) -> Result<Vec<f64>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            inputs,
            outputs,
            function: Box::new(function),
        }
    }

    /// A transform by a function whose arrays say how many coordinates it takes and gives.
    pub(super) fn of<const I: usize, const O: usize>(
        function: impl Fn([f64; I]) -> Result<[f64; O]> + Send + Sync + 'static,
    ) -> Self {
        Self::new((I, O), move |point| match point.try_into() {
            Ok(point) => function(point).map(Vec::from),
            // another number of coordinates, which `chain` excludes
            Err(_) => Ok(vec![f64::NAN; O]),
        })
    }

    /// This many times one coordinate, and that much more.
    pub(super) fn line(times: f64, more: f64) -> Self {
        Self::of(move |[x]| Ok([times * x + more]))
    }

    /// The coordinates at these places, of so many.
    pub(super) fn remap(places: Vec<usize>, inputs: usize) -> Self {
        Self::new((inputs, places.len()), move |point| {
            let at = |place: &usize| point.get(*place).copied().unwrap_or(f64::NAN);
            Ok(places.iter().map(at).collect())
        })
    }

    /// The rotation of a longitude and a latitude.
    pub(super) fn rotate_sphere(matrix: Matrix, wrap: Wrap) -> Self {
        Self::of(move |point| Ok(sphere(times(&matrix, vector(point)), wrap)))
    }

    /// Each takes the coordinates behind those of the one before.
    pub(super) fn beside(parts: Vec<Self>) -> Self {
        let ends = parts.iter().fold((0_usize, 0_usize), |ends, part| {
            let outputs = ends.1.saturating_add(part.outputs);
            (ends.0.saturating_add(part.inputs), outputs)
        });
        Self::new(ends, move |point| {
            let (mut rest, mut all) = (point, Vec::new());
            for part in &parts {
                let (own, behind) = rest.split_at(part.inputs.min(rest.len()));
                all.extend(part.apply(own)?);
                rest = behind;
            }
            Ok(all)
        })
    }

    /// Each takes what the one before gives.
    pub(super) fn chain(parts: Vec<Self>) -> std::result::Result<Self, &'static str> {
        let mut pairs = parts.iter().zip(parts.iter().skip(1));
        let fit = pairs.all(|(one, next)| one.outputs == next.inputs);
        let ends = parts.first().zip(parts.last()).filter(|_| fit);
        let ends = ends.map(|(first, last)| (first.inputs, last.outputs));
        let ends = ends.ok_or("transforms that do not follow each other")?;
        Ok(Self::new(ends, move |point| {
            let mut parts = parts.iter();
            parts.try_fold(point.to_vec(), |point, part| part.apply(&point))
        }))
    }

    /// What becomes of a point. Where there is no number, there is NaN.
    ///
    /// # Errors
    /// Those of reading stored coefficients.
    pub(super) fn apply(&self, point: &[f64]) -> Result<Vec<f64>> {
        (self.function)(point)
    }
}

/// The tangent plane to the native sphere (FITS WCS Paper II, equations 14, 15 and 55).
pub(super) fn to_sky([x, y]: [f64; 2]) -> [f64; 2] {
    let theta = f64::atan2(1_f64.to_degrees(), f64::hypot(x, y));
    [f64::atan2(x, -y).to_degrees(), theta.to_degrees()]
}

/// The native sphere to the tangent plane (equations 12, 13 and 54). The half of the sphere behind the centre is not in the plane.
pub(super) fn from_sky([phi, theta]: [f64; 2]) -> [f64; 2] {
    let far = if theta > 0.0 { 1.0 } else { f64::NAN };
    let radius = (far / theta.to_radians().tan()).to_degrees();
    let (sin, cos) = phi.to_radians().sin_cos();
    [radius * sin, -radius * cos]
}

/// A polynomial by the coefficients of the powers of x, from that of 1 on.
pub(super) fn horner(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

/// A polynomial of two coordinates: row i, column j has the coefficient of x^i y^j, as far as i + j is below `side`.
pub(super) fn square(coefficients: &[f64], side: usize, x: f64, y: f64) -> f64 {
    // Horner's scheme in x, each of whose coefficients is a polynomial in y
    let rows = coefficients.chunks(side.max(1)).take(side).enumerate();
    rows.rev().fold(0.0, |sum, (i, row)| {
        let row = row.get(..side.saturating_sub(i)).unwrap_or(row);
        sum * x + horner(row, y)
    })
}

/// A matrix times a vector.
pub(super) fn times<const N: usize>(matrix: &[[f64; N]; N], vector: [f64; N]) -> [f64; N] {
    matrix.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
}

/// A matrix whose rows are the columns of another.
fn transposed([[xx, xy, xz], [yx, yy, yz], [zx, zy, zz]]: Matrix) -> Matrix {
    [[xx, yx, zx], [xy, yy, zy], [xz, yz, zz]]
}

/// The unit vector of a longitude and a latitude.
pub(super) fn vector([longitude, latitude]: [f64; 2]) -> [f64; 3] {
    let (sin, cos) = longitude.to_radians().sin_cos();
    let (z, radius) = latitude.to_radians().sin_cos();
    [radius * cos, radius * sin, z]
}

/// The longitude and latitude of a vector.
pub(super) fn sphere([x, y, z]: [f64; 3], wrap: Wrap) -> [f64; 2] {
    let radius = f64::hypot(x, y);
    // a pole has any longitude; astropy says 0
    let longitude = if radius == 0.0 {
        0.0
    } else {
        f64::atan2(y, x).to_degrees()
    };
    let latitude = f64::atan2(z, radius).to_degrees();
    match wrap {
        Wrap::At360 => [longitude.rem_euclid(360.0), latitude],
        Wrap::At180 => [longitude, latitude],
    }
}

/// The rotation by an angle about an axis, if that is `x`, `y` or `z`.
fn about(axis: char, angle: f64) -> Option<Matrix> {
    let (s, c) = angle.to_radians().sin_cos();
    match axis {
        'x' => Some([[1.0, 0.0, 0.0], [0.0, c, s], [0.0, -s, c]]),
        'y' => Some([[c, 0.0, -s], [0.0, 1.0, 0.0], [s, 0.0, c]]),
        'z' => Some([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]]),
        _ => None,
    }
}

/// The rotations by these angles about these axes, one after the other; `None` if there is another axis, or not one for each angle.
pub(super) fn rotations(axes: &str, angles: &[f64]) -> Option<Matrix> {
    if axes.len() != angles.len() {
        return None;
    }
    let mut both = axes.chars().zip(angles);
    both.try_fold(about('z', 0.0)?, |done, (axis, angle)| {
        let next = about(axis, *angle)?;
        // a matrix times another is it times each column of that
        Some(transposed(
            transposed(done).map(|column| times(&next, column)),
        ))
    })
}
