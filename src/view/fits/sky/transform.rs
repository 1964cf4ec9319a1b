//! The transforms of a gwcs that are known, evaluated for a point (ASDF Transform Schemas 0.6; gwcs 1.0).
//!
//! Angles are in degrees, as astropy's models have them without units. A rotation turns the axes, not the points.

use crate::error::{Lasting, Result};

/// A linear map of three coordinates, by rows.
pub(super) type Matrix = [[f64; 3]; 3];

/// Coefficients, which are read when they are first needed: to open a file must not decode a block.
pub(super) struct Numbers {
    read: Box<dyn Fn() -> Result<Vec<f64>> + Send + Sync>,
    found: Lasting<Vec<f64>>,
}

impl Numbers {
    /// Those that `read` gives.
    pub(super) fn new(read: impl Fn() -> Result<Vec<f64>> + Send + Sync + 'static) -> Self {
        Self {
            read: Box::new(read),
            found: Lasting::new(),
        }
    }

    /// All of them.
    fn all(&self) -> Result<&[f64]> {
        self.found.get_or_make(&self.read).map(Vec::as_slice)
    }
}

/// A linear map of one coordinate: this many times, and that much more.
#[derive(Clone, Copy)]
pub(super) struct Line(pub(super) f64, pub(super) f64);

impl Line {
    /// The map of one interval to another.
    pub(super) fn between(from: [f64; 2], to: [f64; 2]) -> Self {
        let times = (to[1] - to[0]) / (from[1] - from[0]);
        Self(times, to[0] - from[0] * times)
    }

    fn of(self, x: f64) -> f64 {
        self.0 * x + self.1
    }
}

/// A transform.
pub(super) enum Transform {
    /// Of one coordinate.
    Line(Line),
    /// A number in the place of so many coordinates.
    Constant(f64, usize),
    /// The coordinates at these places, of so many.
    Remap(Vec<usize>, usize),
    /// Of one coordinate: the coefficients of its powers.
    Polynomial1(Numbers, Line),
    /// Of two coordinates: the coefficients of the products of their powers, in a square of this length.
    Polynomial2(Numbers, usize, [Line; 2]),
    /// Of two coordinates: a matrix, and what is added.
    Affine(Numbers, Numbers),
    /// Of a vector.
    Rotate(Matrix),
    /// A longitude and a latitude to a unit vector.
    ToVector,
    /// A vector to its longitude and latitude.
    ToSphere(Wrap),
    /// The tangent plane to the native sphere.
    ToSky,
    /// The native sphere to the tangent plane.
    FromSky,
    /// Each takes the coordinates behind those of the one before.
    Beside(Vec<Self>),
    /// Each takes what the one before gives.
    Chain(Vec<Self>),
}

/// Where longitudes are cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrap {
    /// They are from 0 to 360.
    At360,
    /// They are from -180 to 180.
    At180,
}

impl Transform {
    /// The rotation of a longitude and a latitude.
    pub(super) fn rotate_sphere(matrix: Matrix, wrap: Wrap) -> Self {
        Self::Chain(vec![
            Self::ToVector,
            Self::Rotate(matrix),
            Self::ToSphere(wrap),
        ])
    }

    /// How many coordinates it takes and gives.
    pub(super) fn arity(&self) -> (usize, usize) {
        match self {
            Self::Line(_) | Self::Polynomial1(..) => (1, 1),
            Self::Constant(_, inputs) => (*inputs, 1),
            Self::Remap(places, inputs) => (*inputs, places.len()),
            Self::Polynomial2(..) => (2, 1),
            Self::Affine(..) | Self::ToSky | Self::FromSky => (2, 2),
            Self::Rotate(_) => (3, 3),
            Self::ToVector => (2, 3),
            Self::ToSphere(_) => (3, 2),
            Self::Beside(parts) => parts.iter().fold((0, 0), |(inputs, outputs), part| {
                let (more, also) = part.arity();
                (inputs.saturating_add(more), outputs.saturating_add(also))
            }),
            Self::Chain(parts) => (
                parts.first().map_or(0, |part| part.arity().0),
                parts.last().map_or(0, |part| part.arity().1),
            ),
        }
    }

    /// What becomes of a point. Where there is no number, there is NaN.
    ///
    /// # Errors
    /// Those of reading stored coefficients.
    pub(super) fn apply(&self, point: &[f64]) -> Result<Vec<f64>> {
        Ok(match (self, point) {
            (Self::Line(line), [x]) => vec![line.of(*x)],
            (Self::Constant(value, _), _) => vec![*value],
            (Self::Remap(places, _), _) => {
                let at = |place: &usize| point.get(*place).copied().unwrap_or(f64::NAN);
                places.iter().map(at).collect()
            }
            (Self::Polynomial1(numbers, line), [x]) => vec![horner(numbers.all()?, line.of(*x))],
            (Self::Polynomial2(numbers, side, [of_x, of_y]), [x, y]) => {
                vec![square(numbers.all()?, *side, of_x.of(*x), of_y.of(*y))]
            }
            (Self::Affine(matrix, translation), [x, y]) => {
                match (matrix.all()?, translation.all()?) {
                    ([xx, xy, yx, yy], [dx, dy]) => {
                        vec![xx * x + xy * y + dx, yx * x + yy * y + dy]
                    }
                    // an array with fewer elements than it declares
                    _ => vec![f64::NAN; 2],
                }
            }
            (Self::Rotate(matrix), [x, y, z]) => times(matrix, [*x, *y, *z]).into(),
            (Self::ToVector, [longitude, latitude]) => vector([*longitude, *latitude]).into(),
            (Self::ToSphere(wrap), [x, y, z]) => sphere([*x, *y, *z], *wrap).into(),
            // FITS WCS Paper II, equations 14, 15 and 55
            (Self::ToSky, [x, y]) => {
                let theta = f64::atan2(1_f64.to_degrees(), f64::hypot(*x, *y));
                vec![f64::atan2(*x, -y).to_degrees(), theta.to_degrees()]
            }
            // equations 12, 13 and 54; the half of the sphere behind the centre is not in the plane
            (Self::FromSky, [phi, theta]) => {
                let far = if *theta > 0.0 { 1.0 } else { f64::NAN };
                let radius = (far / theta.to_radians().tan()).to_degrees();
                let (sin, cos) = phi.to_radians().sin_cos();
                vec![radius * sin, -radius * cos]
            }
            (Self::Beside(parts), _) => {
                let (mut rest, mut all) = (point, Vec::new());
                for part in parts {
                    let (own, behind) = rest.split_at(part.arity().0.min(rest.len()));
                    all.extend(part.apply(own)?);
                    rest = behind;
                }
                all
            }
            (Self::Chain(parts), _) => {
                let mut parts = parts.iter();
                parts.try_fold(point.to_vec(), |point, part| part.apply(&point))?
            }
            // another number of coordinates, which `arity` excludes
            _ => vec![f64::NAN; self.arity().1],
        })
    }
}

/// A polynomial by the coefficients of the powers of x, from that of 1 on.
fn horner(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

/// A polynomial of two coordinates: row i, column j has the coefficient of x^i y^j, as far as i + j is below `side`.
fn square(coefficients: &[f64], side: usize, x: f64, y: f64) -> f64 {
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
fn sphere([x, y, z]: [f64; 3], wrap: Wrap) -> [f64; 2] {
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
