//! Consolidation: when a lineage is too long, and how much of it becomes one layer.

use crate::layers::LayerId;

/// How much an L2 table and the like may take besides the bytes that are copied.
const TABLES: i64 = 1 << 20;
/// So much larger is a layer that is better left alone.
const LARGE: i64 = 3;

/// A layer of a lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    pub layer: LayerId,
    /// What the layer itself takes.
    pub bytes: i64,
    /// It is there, and nobody doubts its bytes.
    pub sound: bool,
}

/// What a layer is to stand on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub onto: LayerId,
    /// As much as that may write.
    pub bytes: i64,
}

/// How a lineage becomes short enough: its first, the layer itself, becomes one with some that follow, and stands on the next. None when
/// it is short enough, or cannot be helped.
///
/// The last is never touched: it is an image from outside, which others share. So much as is needed becomes one; and beyond that, as
/// long as the next is not `LARGE` times all above it. So what is large is copied seldom: of a device that is captured 256 times, with
/// the usual four layers, each byte is written eight times, where forty would be if all became one each time.
pub fn plan(lineage: &[Link], most: i64) -> Option<Plan> {
    let most = usize::try_from(most).unwrap_or(usize::MAX).max(2);
    if lineage.len() <= most {
        return None;
    }
    let (needed, last) = (lineage.len() + 1 - most, lineage.len() - 1);
    let (merged, rest) = lineage[..last].split_at(needed);
    if merged.iter().any(|link| !link.sound) {
        return None;
    }
    let mut bytes = merged.iter().map(|link| link.bytes).sum::<i64>();
    let mut count = needed;
    for link in rest {
        if !link.sound || link.bytes > bytes.saturating_mul(LARGE) {
            break;
        }
        bytes += link.bytes;
        count += 1;
    }
    Some(Plan { onto: lineage[count].layer, bytes: bytes + TABLES })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn link(number: u128, bytes: i64) -> Link {
        Link { layer: LayerId(Uuid::from_u128(number)), bytes, sound: true }
    }

    /// From the top down, each known by its place.
    fn lineage(bytes: &[i64]) -> Vec<Link> {
        (0..).zip(bytes).map(|(number, bytes)| link(number, *bytes)).collect()
    }

    #[test]
    fn as_much_becomes_one_as_is_needed_and_as_pays() {
        for (bytes, most, onto) in [
            (vec![], 4, None),
            (vec![1, 1, 1, 100], 4, None),
            // One too many: all that are alike become one, and the image stays.
            (vec![1, 1, 1, 1, 100], 4, Some(4)),
            (vec![1, 1, 1, 1, 0], 4, Some(4)),
            // What was merged before is larger, and is left alone as long as that helps.
            (vec![1, 1, 1, 9, 100], 4, Some(4)),
            (vec![1, 1, 1, 10, 100], 4, Some(3)),
            (vec![1, 2, 10, 1, 100], 4, Some(2)),
            // It has to be, whatever it costs.
            (vec![1, 50, 60, 700, 100], 2, Some(4)),
            (vec![1, 50, 60, 700, 100], 3, Some(3)),
            (vec![1, 50, 600, 700, 10000], 4, Some(2)),
            // An image is never merged, however short a lineage is wished for.
            (vec![1, 1], 1, None),
            (vec![1, 1, 1], 0, Some(2)),
        ] {
            let found = plan(&lineage(&bytes), most).map(|plan| plan.onto.0.as_u128());
            assert_eq!(found, onto, "{bytes:?} with {most}");
        }
    }

    #[test]
    fn what_is_in_doubt_is_not_merged() {
        let mut links = lineage(&[1, 1, 1, 1, 100]);
        links[2].sound = false;
        assert_eq!(plan(&links, 4).map(|plan| plan.onto), Some(links[2].layer), "no further than to it");
        links[1].sound = false;
        assert_eq!(plan(&links, 4), None);
    }

    proptest! {
        #[test]
        fn afterwards_it_is_short_enough_and_room_was_kept(bytes in proptest::collection::vec(0i64..1000, 0..40), most in 2i64..12) {
            let links = lineage(&bytes);
            match plan(&links, most) {
                None => prop_assert!(links.len() as i64 <= most),
                Some(plan) => {
                    let count = links.iter().position(|link| link.layer == plan.onto).expect("one of them");
                    prop_assert!(count >= 2 && (links.len() - count + 1) as i64 <= most);
                    prop_assert!(plan.bytes >= bytes[..count].iter().sum::<i64>());
                }
            }
        }

        #[test]
        fn a_device_that_is_captured_again_and_again_is_copied_seldom(captures in 50usize..400, most in 4i64..9) {
            let mut chain = vec![link(0, 1_000_000)];
            let (mut written, mut deepest) = (0, 0);
            for number in 1..=captures {
                chain.insert(0, link(number as u128, 100));
                if let Some(plan) = plan(&chain, most) {
                    let count = chain.iter().position(|link| link.layer == plan.onto).expect("one of them");
                    let bytes = chain[..count].iter().map(|link| link.bytes).sum();
                    chain.splice(1..count, []);
                    chain[0].bytes = bytes;
                    written += bytes;
                }
                deepest = deepest.max(chain.len() as i64);
            }
            prop_assert_eq!(deepest, most);
            prop_assert!(written < 12 * 100 * captures as i64, "{written} for {captures}");
        }
    }
}
