//! The values of options that pictures are made by.

use crate::asdf::picture::{GreyLimits, SIZES};

/// Points of the longer side of a picture.
pub(crate) fn size(text: &str) -> Result<u16, String> {
    let size = text.parse().ok().filter(|size| SIZES.contains(size));
    let (least, most) = (SIZES.start(), SIZES.end());
    size.ok_or_else(|| format!("{least} to {most} points make sense"))
}

/// How black and white are chosen.
pub(super) fn limits(text: &str) -> Result<GreyLimits, String> {
    let percent = |text: &str| {
        let percent = text.parse().ok();
        percent.filter(|percent| (1.0..=100.0).contains(percent))
    };
    match text.split_once(':') {
        None if text == "zscale" => Ok(GreyLimits::Zscale),
        None if text == "minmax" => Ok(GreyLimits::MinMax),
        Some(("percent", text)) => percent(text)
            .map(GreyLimits::Percent)
            .ok_or_else(|| "percent:1 to percent:100 make sense".to_owned()),
        _ => Err("zscale, minmax or percent:P?".to_owned()),
    }
}
