//! A picture in memory: rectangles, discs, arcs, polygons and text.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster};

/// Red, green and blue in one word.
pub type Colour = u32;

/// A part of a picture, without its right and lower edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    pub left: i32,
    pub top: i32,
    pub right: i32,
    pub bottom: i32,
}

impl Area {
    pub fn width(&self) -> i32 {
        self.right - self.left
    }

    pub fn height(&self) -> i32 {
        self.bottom - self.top
    }

    pub fn centre(&self) -> (i32, i32) {
        ((self.left + self.right) / 2, (self.top + self.bottom) / 2)
    }
}

pub struct Canvas {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<Colour>,
    /// Nothing is drawn outside of it.
    within: Area,
}

impl Canvas {
    pub fn new(width: usize, height: usize) -> Canvas {
        let within = Area { left: 0, top: 0, right: width as i32, bottom: height as i32 };
        Canvas { width, height, pixels: vec![0; width * height], within }
    }

    pub fn whole(&self) -> Area {
        Area { left: 0, top: 0, right: self.width as i32, bottom: self.height as i32 }
    }

    /// Whatever follows is drawn inside of it.
    pub fn stay_within(&mut self, area: Area) {
        let whole = self.whole();
        self.within = Area {
            left: area.left.clamp(0, whole.right),
            top: area.top.clamp(0, whole.bottom),
            right: area.right.clamp(0, whole.right),
            bottom: area.bottom.clamp(0, whole.bottom),
        };
    }

    /// Fills everything, from one colour at the top of the picture to another at its bottom.
    pub fn fill(&mut self, top: Colour, bottom: Colour) {
        let Area { left, right, .. } = self.within;
        for y in self.within.top..self.within.bottom {
            let start = y as usize * self.width;
            let colour = mix(top, bottom, (y as usize * 255 / self.height.max(1)) as u32);
            self.pixels[start + left as usize..start + right.max(left) as usize].fill(colour);
        }
    }

    fn blend(&mut self, x: i32, y: i32, colour: Colour, share: u32) {
        let Area { left, top, right, bottom } = self.within;
        if (left..right).contains(&x) && (top..bottom).contains(&y) {
            let pixel = &mut self.pixels[y as usize * self.width + x as usize];
            *pixel = mix(*pixel, colour, share);
        }
    }

    /// A rectangle with round corners.
    pub fn panel(
        &mut self,
        (left, top): (i32, i32),
        (width, height): (i32, i32),
        radius: i32,
        colour: Colour,
    ) {
        for y in 0..height {
            let from_edge = (radius - y).max(y - (height - 1 - radius)).max(0);
            let inset = radius as f32 - ((radius * radius - from_edge * from_edge).max(0) as f32).sqrt();
            let whole = inset.ceil() as i32;
            for x in whole..width - whole {
                self.blend(left + x, top + y, colour, 255);
            }
            // The rest of a corner's last pixel.
            let rest = ((whole as f32 - inset) * 255.0) as u32;
            if rest > 0 {
                self.blend(left + whole - 1, top + y, colour, rest);
                self.blend(left + width - whole, top + y, colour, rest);
            }
        }
    }

    pub fn disc(&mut self, centre: (i32, i32), radius: i32, colour: Colour) {
        self.panel((centre.0 - radius, centre.1 - radius), (2 * radius, 2 * radius), radius, colour);
    }

    /// A ring's part between two angles in degrees, clockwise from the top.
    pub fn arc(
        &mut self,
        centre: (i32, i32),
        (inner, outer): (i32, i32),
        (from, to): (f32, f32),
        colour: Colour,
    ) {
        // Whole numbers instead of an angle for each pixel: a device without hardware for fractions draws this, too.
        let toward = |angle: f32| {
            let (sine, cosine) = angle.to_radians().sin_cos();
            ((sine * 4096.0) as i32, (-cosine * 4096.0) as i32)
        };
        let (first, last) = (toward(from), toward(to));
        let behind = |(dx, dy): (i32, i32), x: i32, y: i32| dx * y - dy * x >= 0;
        let wide = to - from > 180.0;
        for y in -outer..=outer {
            for x in -outer..=outer {
                let square = x * x + y * y;
                if square <= (inner - 1) * (inner - 1) || square >= (outer + 1) * (outer + 1) {
                    continue;
                }
                let (after, before) = (behind(first, x, y), !behind(last, x, y));
                if if wide { after || before } else { after && before } {
                    let distance = (square as f32).sqrt();
                    let share = (distance - inner as f32 + 1.0).min(outer as f32 + 1.0 - distance);
                    self.blend(centre.0 + x, centre.1 + y, colour, (share.clamp(0.0, 1.0) * 255.0) as u32);
                }
            }
        }
    }

    /// A shape between corners, none of which points inward.
    pub fn polygon(&mut self, corners: &[(i32, i32)], colour: Colour) {
        let range = |part: fn(&(i32, i32)) -> i32| {
            let values = || corners.iter().map(part);
            values().min().unwrap_or(0)..=values().max().unwrap_or(-1)
        };
        let edges = || corners.iter().zip(corners.iter().cycle().skip(1));
        for y in range(|corner| corner.1) {
            for x in range(|corner| corner.0) {
                // Four points of each pixel, in quarters.
                let inside = [(1, 1), (3, 1), (1, 3), (3, 3)].iter().filter(|(right, below)| {
                    let (x, y) = (4 * x + right - 2, 4 * y + below - 2);
                    edges().all(|(a, b)| (b.0 - a.0) * (y - 4 * a.1) - (b.1 - a.1) * (x - 4 * a.0) >= 0)
                });
                let share = inside.count() as u32 * 255 / 4;
                if share > 0 {
                    self.blend(x, y, colour, share);
                }
            }
        }
    }

    /// Text around a centre, its height in pixels; letters that the font lacks become question marks.
    pub fn text(&mut self, (centre, top): (i32, i32), height: i32, text: &str, colour: Colour) {
        let (raster, full) = match height {
            ..=18 => (RasterHeight::Size16, 16),
            19..=27 => (RasterHeight::Size24, 24),
            _ => (RasterHeight::Size32, 32),
        };
        let glyphs: Vec<_> = text
            .chars()
            .filter_map(|letter| {
                let glyph = get_raster(letter, FontWeight::Bold, raster);
                glyph.or_else(|| get_raster('?', FontWeight::Bold, raster))
            })
            .collect();
        let advance = |width: usize| width as i32 * height / full;
        let mut left = centre - glyphs.iter().map(|glyph| advance(glyph.width())).sum::<i32>() / 2;
        for glyph in glyphs {
            let (rows, width) = (glyph.raster(), advance(glyph.width()));
            for y in 0..height {
                for x in 0..width {
                    let share = sample(
                        rows,
                        x as f32 * full as f32 / height as f32,
                        y as f32 * full as f32 / height as f32,
                    );
                    // Enlarged letters get their edges back.
                    let share = if height > full { ((share - 96.0) * 4.0).clamp(0.0, 255.0) } else { share };
                    if share > 0.0 {
                        self.blend(left + x, top + y, colour, share as u32);
                    }
                }
            }
            left += width;
        }
    }
}

/// The share at a place between four of the font's points.
fn sample(rows: &[&[u8]], x: f32, y: f32) -> f32 {
    let at = |x: usize, y: usize| rows.get(y).and_then(|row| row.get(x)).copied().map_or(0.0, f32::from);
    let (column, row, right, below) = (x as usize, y as usize, x.fract(), y.fract());
    let upper = at(column, row) * (1.0 - right) + at(column + 1, row) * right;
    let lower = at(column, row + 1) * (1.0 - right) + at(column + 1, row + 1) * right;
    upper * (1.0 - below) + lower * below
}

/// One colour over another, `share` of 255.
pub fn mix(under: Colour, over: Colour, share: u32) -> Colour {
    let part = |shift: u32| {
        let (under, over) = (under >> shift & 0xff, over >> shift & 0xff);
        ((under * (255 - share.min(255)) + over * share.min(255)) / 255) << shift
    };
    part(16) | part(8) | part(0)
}
