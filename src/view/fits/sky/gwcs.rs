//! A gwcs of the tree: its steps as one transform, and what it says of its frames (gwcs 1.0, ASDF WCS Schemas 0.5).
//!
//! What is not known is an error that names it: coordinates that are wrong are worse than none.

use std::cell::Cell;

use super::transform::{
    Numbers, Transform, Wrap, between, from_sky, horner, read_once, rotations, sphere, square,
    times, to_sky, vector,
};
use crate::asdf::datatype::Datatype;
use crate::asdf::numbers::{each_number, nearest};
use crate::asdf::outline::column::is_tagged;
use crate::asdf::scalar::Value;
use crate::asdf::tree::{Node, NodeKind};
use crate::asdf::{Origin, Snapshot};
use crate::source::{len_u64, read_all};
use crate::view::{Elements, array_at, product};

/// What may be done for each point: about as many multiplications.
const MAX_COST: usize = 2000;
/// What a transform costs besides its coefficients.
const COST: usize = 10;
/// Most numbers of one array of coefficients, and bytes of a longest one.
const MAX_NUMBERS: u64 = 256;
const LONGEST: u64 = 16;
/// Characters of a name from the tree in a message.
const MAX_NAME: usize = 40;

type Found<T> = Result<T, String>;

/// What sky coordinates are measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// Right ascension and declination in the International Celestial Reference System.
    Icrs,
    /// Galactic longitude and latitude.
    Galactic,
}

/// The way from pixels to the sky.
pub(super) struct Gwcs {
    /// Of a pixel, whose centre has whole coordinates from 0 on, to degrees.
    pub(super) transform: Transform,
    /// The interval of each coordinate in which it holds.
    pub(super) bounds: Option<[[f64; 2]; 2]>,
    pub(super) frame: Frame,
}

/// Reads a gwcs.
pub(super) struct Reader<'s> {
    snapshot: &'s Snapshot,
    /// The elements of an array.
    elements: Elements<'s>,
    /// What may still be done for each point.
    left: Cell<usize>,
}

impl<'s> Reader<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, elements: Elements<'s>) -> Self {
        Self {
            snapshot,
            elements,
            left: Cell::new(MAX_COST),
        }
    }

    /// The gwcs that a node declares.
    pub(super) fn gwcs(&self, node: Node<'_>) -> Found<Gwcs> {
        let steps = node.get("steps").ok_or("a gwcs without steps")?;
        let mut parts = Vec::new();
        let mut bounds = None;
        let mut last = None;
        for (n, step) in steps.items().map(Node::follow).enumerate() {
            let frame = step.get("frame").ok_or("a step without a frame")?;
            let transform = step.get("transform").filter(|it| !is_null(*it));
            if n == 0 {
                pixels(frame)?;
                // gwcs has the bounding box of the whole on its first transform
                bounds = transform.map(intervals).transpose()?.flatten();
            } else if last.is_some() {
                return Err("a frame that no transform leads from".to_owned());
            }
            match transform {
                Some(transform) => parts.push(self.transform(transform)?),
                None => last = Some(frame),
            }
        }
        let frame = celestial(last.ok_or("a last step with a transform")?)?;
        let transform = Transform::chain(parts)?;
        let (inputs, outputs) = (transform.inputs, transform.outputs);
        if (inputs, outputs) != (2, 2) {
            return Err(format!("{inputs} coordinates to {outputs}, not 2 to 2"));
        }
        Ok(Gwcs {
            transform,
            bounds,
            frame,
        })
    }

    /// Counts what is done for each point.
    fn spend(&self, cost: usize) -> Found<()> {
        let left = self.left.get().checked_sub(cost);
        self.left
            .set(left.ok_or("a transform that takes too long")?);
        Ok(())
    }

    /// The transform that a node declares.
    pub(super) fn transform(&self, node: Node<'_>) -> Found<Transform> {
        self.spend(COST)?;
        let name = kind(node, &["stsci.edu:asdf/transform/", "stsci.edu:gwcs/"])
            .ok_or_else(|| unknown("the transform", last_of_tag(node)))?;
        let parts = || {
            let parts = node.get("forward").ok_or("a transform of no others")?;
            let parts = parts.items().map(|part| self.transform(part.follow()));
            parts.collect::<Found<Vec<_>>>()
        };
        match name {
            "compose" => Ok(Transform::chain(parts()?)?),
            "concatenate" => Ok(Transform::beside(parts()?)),
            "shift" => Ok(Transform::line(1.0, number(node, "offset")?)),
            "scale" => Ok(Transform::line(number(node, "factor")?, 0.0)),
            "identity" => {
                let count = count(node, "n_dims")?.unwrap_or(1);
                // each coordinate is copied
                self.spend(count)?;
                Ok(Transform::remap((0..count).collect(), count))
            }
            "constant" => {
                let inputs = count(node, "dimensions")?.unwrap_or(1);
                let value = number(node, "value")?;
                Ok(Transform::new((inputs, 1), move |_| Ok(vec![value])))
            }
            "remap_axes" => remap(node),
            "polynomial" => self.polynomial(node),
            "affine" => self.affine(node),
            "rotate3d" => euler(node),
            "rotate_sequence_3d" => sequence(node),
            "spherical_cartesian" => match text(node, "transform_type")? {
                "spherical_to_cartesian" => Ok(Transform::of(|point| Ok(vector(point)))),
                "cartesian_to_spherical" => {
                    let wrap = match count(node, "wrap_lon_at")? {
                        Some(180) => Wrap::At180,
                        Some(360) => Wrap::At360,
                        _ => return Err("spherical_cartesian: wrap_lon_at is not known".to_owned()),
                    };
                    Ok(Transform::of(move |point| Ok(sphere(point, wrap))))
                }
                other => Err(unknown("spherical_cartesian:", Some(other))),
            },
            "gnomonic" => match text(node, "direction")? {
                "pix2sky" => Ok(Transform::of(|point| Ok(to_sky(point)))),
                "sky2pix" => Ok(Transform::of(|point| Ok(from_sky(point)))),
                other => Err(unknown("gnomonic:", Some(other))),
            },
            other => Err(unknown("the transform", Some(other))),
        }
    }

    fn affine(&self, node: Node<'_>) -> Found<Transform> {
        let of = |key: &str, wanted: &[u64]| match self.array(node, key)? {
            (shape, numbers) if shape == wanted => Ok(numbers),
            _ => Err(format!("affine: {key} of another shape")),
        };
        let (matrix, translation) = (of("matrix", &[2, 2])?, of("translation", &[2])?);
        Ok(Transform::of(move |[x, y]| {
            let (matrix, translation) = (matrix()?, translation()?);
            Ok(match (matrix.as_slice(), translation.as_slice()) {
                ([xx, xy, yx, yy], [dx, dy]) => [xx * x + xy * y + dx, yx * x + yy * y + dy],
                // an array with fewer elements than it declares
                _ => [f64::NAN; 2],
            })
        }))
    }

    fn polynomial(&self, node: Node<'_>) -> Found<Transform> {
        let (shape, numbers) = self.array(node, "coefficients")?;
        let line = |n| {
            let domain = interval(node, "domain", n)?;
            Found::Ok(between(domain, interval(node, "window", n)?))
        };
        match *shape.as_slice() {
            [_] => {
                let line = line(None)?;
                Ok(Transform::of(move |[x]| Ok([horner(&numbers()?, line(x))])))
            }
            [side, other] if side == other => {
                let (of_x, of_y) = (line(Some(0))?, line(Some(1))?);
                let side = usize::try_from(side).map_err(|_| "polynomial: too many")?;
                Ok(Transform::of(move |[x, y]| {
                    Ok([square(&numbers()?, side, of_x(x), of_y(y))])
                }))
            }
            _ => Err("polynomial: coefficients of another shape".to_owned()),
        }
    }

    /// The shape and the numbers of the array, or of the list of numbers or of lists, that a key has.
    fn array(&self, node: Node<'_>, key: &str) -> Found<(Vec<u64>, Numbers)> {
        let fail = |why: &str| format!("{key}: {why}");
        let node = node.get(key).ok_or_else(|| fail("missing"))?;
        let paths = self.snapshot.paths();
        let (shape, numbers) = match paths.and_then(|paths| array_at(paths, node)) {
            Some(i) => {
                let array = self.snapshot.array(i).map_err(|error| error.to_string())?;
                if matches!(array.origin(), Origin::External(_)) {
                    return Err(fail("in another file"));
                }
                let Some(Datatype::Scalar(scalar, order)) = array.datatype() else {
                    return Err(fail("no numbers"));
                };
                let elements = (self.elements)(i).map_err(|error| error.to_string())?;
                let (scalar, order) = (*scalar, *order);
                let stored = move || {
                    let bytes = read_all(&*elements, MAX_NUMBERS.saturating_mul(LONGEST))?;
                    let mut all = Vec::new();
                    each_number(scalar, order, &bytes, &mut |number| all.push(number));
                    Ok(all)
                };
                let shape = array.shape().unwrap_or_default();
                (shape.to_vec(), read_once(stored))
            }
            None => listed(node).map_err(fail)?,
        };
        let count = product(&shape).filter(|count| *count > 0 && *count <= MAX_NUMBERS);
        let count = count.ok_or_else(|| fail("none, or too many"))?;
        self.spend(usize::try_from(count).unwrap_or(usize::MAX))?;
        Ok((shape, numbers))
    }
}

/// A list of numbers, or a list of lists of them that are equally long.
fn listed(node: Node<'_>) -> Result<(Vec<u64>, Numbers), &'static str> {
    let most = usize::try_from(MAX_NUMBERS).unwrap_or(0);
    let rows: Vec<_> = node.items().map(Node::follow).take(most).collect();
    let mut shape = vec![len_u64(node.len())];
    let mut cells = rows.clone();
    let width = rows.first().map_or(0, |row| row.len());
    let has_rows = rows.iter().any(|row| row.kind() == NodeKind::Sequence);
    if has_rows && width <= most && rows.iter().all(|row| row.len() == width) {
        shape.push(len_u64(width));
        cells = rows.iter().flat_map(|row| row.items()).collect();
    }
    let numbers = floats(cells.into_iter()).ok_or("no plain numbers")?;
    Ok((shape, read_once(move || Ok(numbers.clone()))))
}

fn remap(node: Node<'_>) -> Found<Transform> {
    let mapping = node.get("mapping").ok_or("remap_axes: no mapping")?;
    let places = mapping.items().map(|place| whole(place.follow()));
    let places: Option<Vec<usize>> = places.take(COST).collect();
    let places = places.filter(|places| places.len() == mapping.len());
    let places = places.ok_or("remap_axes: a mapping that is not of a few places")?;
    let most = places.iter().max().copied().unwrap_or(0);
    let least = most.checked_add(1).ok_or("remap_axes: too many")?;
    let inputs = count(node, "n_inputs")?.unwrap_or(least);
    if inputs < least {
        return Err("remap_axes: a place that is not there".to_owned());
    }
    Ok(Transform::remap(places, inputs))
}

/// Euler angles, or those of a rotation between the native sphere of a projection and the sky.
fn euler(node: Node<'_>) -> Found<Transform> {
    let angle = |key| number(node, key);
    let (phi, theta, psi) = (angle("phi")?, angle("theta")?, angle("psi")?);
    // those of astropy's RotateNative2Celestial and RotateCelestial2Native (FITS WCS Paper II, equations 2 and 5)
    let (axes, angles, wrap) = match text(node, "direction")? {
        "native2celestial" => (
            "zxz",
            [psi - 90.0, theta - 90.0, -(90.0 + phi)],
            Wrap::At360,
        ),
        "celestial2native" => ("zxz", [90.0 + phi, 90.0 - theta, 90.0 - psi], Wrap::At360),
        axes => (axes, [phi, theta, psi], Wrap::At180),
    };
    let matrix = rotations(axes, &angles);
    let matrix = matrix.ok_or_else(|| unknown("rotate3d:", Some(axes)))?;
    Ok(Transform::rotate_sphere(matrix, wrap))
}

fn sequence(node: Node<'_>) -> Found<Transform> {
    let angles = node.get("angles").ok_or("rotate_sequence_3d: no angles")?;
    let angles = floats(angles.items().take(COST));
    let angles = angles.ok_or("rotate_sequence_3d: an angle with a unit")?;
    let axes = text(node, "axes_order")?;
    let matrix = rotations(axes, &angles).ok_or("rotate_sequence_3d: axes that are not known")?;
    match text(node, "rotation_type")? {
        "cartesian" => Ok(Transform::of(move |point| Ok(times(&matrix, point)))),
        "spherical" => Ok(Transform::rotate_sphere(matrix, Wrap::At180)),
        other => Err(unknown("rotate_sequence_3d:", Some(other))),
    }
}

/// The frame that the gwcs begins with must be one of pixels.
fn pixels(frame: Node<'_>) -> Found<()> {
    axes_in_order(frame)?;
    match other_unit(frame, &["pixel", "pix"]) {
        Some(unit) => Err(format!("the unit {} of pixels", brief(unit.text()))),
        None => Ok(()),
    }
}

/// A unit of a frame that is none of these.
fn other_unit<'t>(frame: Node<'t>, wanted: &[&str]) -> Option<Node<'t>> {
    let units = frame.get("unit").into_iter().flat_map(Node::items);
    let is_other = |unit: &Node<'_>| unit.text().is_none_or(|text| !wanted.contains(&text));
    units.map(Node::follow).find(is_other)
}

/// The frame that the gwcs ends with must be one of the sky, in degrees.
fn celestial(frame: Node<'_>) -> Found<Frame> {
    if kind(frame, &["stsci.edu:gwcs/"]) != Some("celestial_frame") {
        let name = last_of_tag(frame).or_else(|| frame.text());
        return Err(unknown("the frame", name));
    }
    axes_in_order(frame)?;
    if frame.get("unit").is_none() {
        return Err("a sky without units".to_owned());
    }
    if let Some(unit) = other_unit(frame, &["deg"]) {
        return Err(unknown("the unit", unit.text()));
    }
    let reference = frame.get("reference_frame");
    let reference = reference.ok_or("a sky without a reference frame")?;
    match kind(reference, &["astropy.org:astropy/coordinates/frames/"]) {
        Some("icrs") => Ok(Frame::Icrs),
        Some("galactic") => Ok(Frame::Galactic),
        _ => Err(unknown("the frame", last_of_tag(reference))),
    }
}

/// The axes of a frame must be the first and the second coordinate.
fn axes_in_order(frame: Node<'_>) -> Found<()> {
    let order = frame.get("axes_order").into_iter().flat_map(Node::items);
    let same = order.enumerate().all(|(n, axis)| whole(axis) == Some(n));
    same.then_some(())
        .ok_or_else(|| "a frame with axes in another order".to_owned())
}

/// The interval of each coordinate in which a transform holds, if it says. In a list, the last coordinate is the first.
fn intervals(transform: Node<'_>) -> Found<Option<[[f64; 2]; 2]>> {
    let unknown = || "a bounding_box that is not known".to_owned();
    let Some(bounds) = transform.get("bounding_box").filter(|it| !is_null(*it)) else {
        return Ok(None);
    };
    let (x, y) = if bounds.kind() == NodeKind::Sequence {
        let mut items = bounds.items();
        let y = items.next();
        (items.next(), y)
    } else {
        if bounds.get("ignore").is_some_and(|it| !it.is_empty()) {
            return Err(unknown());
        }
        let intervals = bounds.get("intervals").ok_or_else(unknown)?;
        let names = transform.get("inputs").ok_or_else(unknown)?;
        let mut names = names.items().map(Node::follow).map(Node::text);
        let mut next = || intervals.get(names.next()??);
        (next(), next())
    };
    match (x.and_then(pair), y.and_then(pair)) {
        (Some(x), Some(y)) => Ok(Some([x, y])),
        _ => Err(unknown()),
    }
}

/// The interval that a key has, or the one for coordinate `n`: from -1 to 1 where there is none.
fn interval(node: Node<'_>, key: &str, n: Option<usize>) -> Found<[f64; 2]> {
    let found = node.get(key).filter(|it| !is_null(*it));
    let found = match n {
        Some(n) => found.and_then(|all| all.items().nth(n)),
        None => found,
    };
    match found.map(Node::follow).filter(|it| !is_null(*it)) {
        None => Ok([-1.0, 1.0]),
        Some(found) => pair(found)
            .filter(|[low, high]| (high - low).is_normal())
            .ok_or_else(|| format!("polynomial: {key} is no interval")),
    }
}

/// Two numbers.
pub(super) fn pair(node: Node<'_>) -> Option<[f64; 2]> {
    floats(node.follow().items().take(3))?.try_into().ok()
}

/// Nodes that all are numbers.
fn floats<'t>(nodes: impl Iterator<Item = Node<'t>>) -> Option<Vec<f64>> {
    nodes.map(|node| float(node.follow())).collect()
}

/// The name in the tag of a node, without its version, if it begins with one of these behind `tag:`.
fn kind<'t>(node: Node<'t>, homes: &[&str]) -> Option<&'t str> {
    let tag = node.tag()?.strip_prefix("tag:")?;
    let name = homes.iter().find_map(|home| tag.strip_prefix(home))?;
    name.rsplit_once('-').map(|(name, _)| name)
}

/// The last part of a node's tag.
fn last_of_tag(node: Node<'_>) -> Option<&str> {
    node.tag()?.rsplit('/').next()
}

fn is_null(node: Node<'_>) -> bool {
    node.value() == Some(Value::Null)
}

/// A finite number without a unit.
pub(super) fn float(node: Node<'_>) -> Option<f64> {
    match node.value()? {
        Value::Float(number) => Some(number).filter(|number| number.is_finite()),
        Value::Int(number) => Some(nearest(number)),
        _ => None,
    }
}

/// A whole number, not below 0.
pub(super) fn whole(node: Node<'_>) -> Option<usize> {
    match node.value()? {
        Value::Int(number) => usize::try_from(number).ok(),
        _ => None,
    }
}

/// The number that a key has.
fn number(node: Node<'_>, key: &str) -> Found<f64> {
    let found = node.get(key).ok_or_else(|| format!("no {key}"))?;
    if is_tagged(found, &["quantity-"]) {
        let unit = found.get("unit").and_then(Node::text);
        return Err(format!("{key} with the unit {}", brief(unit)));
    }
    float(found).ok_or_else(|| format!("{key} is no number"))
}

/// The small number that a key has, if it is there.
fn count(node: Node<'_>, key: &str) -> Found<Option<usize>> {
    let found = node.get(key).filter(|it| !is_null(*it)).map(|found| {
        let count = whole(found).filter(|count| *count <= 360);
        count.ok_or_else(|| format!("{key} is no small number"))
    });
    found.transpose()
}

fn text<'t>(node: Node<'t>, key: &str) -> Found<&'t str> {
    let found = node.get(key).and_then(Node::text);
    found.ok_or_else(|| format!("no {key}"))
}

/// A name of the tree, cut for a message.
fn brief(name: Option<&str>) -> &str {
    let name = name.unwrap_or("without a name");
    name.split_at(name.floor_char_boundary(MAX_NAME)).0
}

/// Why something of that name can't be evaluated.
fn unknown(what: &str, name: Option<&str>) -> String {
    format!("{what} {} is not known", brief(name))
}
