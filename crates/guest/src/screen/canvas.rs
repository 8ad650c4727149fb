//! A picture in memory: rectangles, discs, arcs and text.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster};

/// Red, green and blue in one word.
pub type Colour = u32;

pub struct Canvas {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<Colour>,
}

impl Canvas {
    pub fn new(width: usize, height: usize) -> Canvas {
        Canvas { width, height, pixels: vec![0; width * height] }
    }

    /// Fills everything, from one colour at the top to another at the bottom.
    pub fn fill(&mut self, top: Colour, bottom: Colour) {
        for (y, row) in self.pixels.chunks_exact_mut(self.width).enumerate() {
            row.fill(mix(top, bottom, (y * 255 / self.height.max(1)) as u32));
        }
    }

    fn blend(&mut self, x: i32, y: i32, colour: Colour, share: u32) {
        if (0..self.width as i32).contains(&x) && (0..self.height as i32).contains(&y) {
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
            let inset = radius - isqrt(radius * radius - from_edge * from_edge);
            for x in inset..width - inset {
                self.blend(left + x, top + y, colour, 255);
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
        for y in -outer..=outer {
            for x in -outer..=outer {
                let square = x * x + y * y;
                if square < inner * inner || square > outer * outer {
                    continue;
                }
                let angle = (x as f32).atan2(-y as f32).to_degrees();
                if (from..=to).contains(&angle) {
                    self.blend(centre.0 + x, centre.1 + y, colour, 255);
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

fn isqrt(value: i32) -> i32 {
    f64::from(value.max(0)).sqrt() as i32
}

/// One colour over another, `share` of 255.
pub fn mix(under: Colour, over: Colour, share: u32) -> Colour {
    let part = |shift: u32| {
        let (under, over) = (under >> shift & 0xff, over >> shift & 0xff);
        ((under * (255 - share.min(255)) + over * share.min(255)) / 255) << shift
    };
    part(16) | part(8) | part(0)
}
