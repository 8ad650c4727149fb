//! Lists: which part of one is wanted, and how it is fetched page by page.

use std::time::Duration;

use clap::Args;
use paddock_api::client;
use paddock_api::page::{ListPage, Page};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Output, Row};

const LARGEST_PAGE: usize = 200;
/// How often in a row a server that wants fewer requests is asked once more, a second apart.
const PATIENCE: u32 = 60;

#[derive(Args)]
pub struct Pages {
    /// Show at most this many [default: all]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Go on where an earlier list ended: its nextCursor
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

impl Pages {
    /// Gets page after page until there are enough, and shows them as one list.
    pub async fn show<T: Row + Serialize>(
        self,
        output: Output,
        get: impl AsyncFn(ListPage) -> client::Result<Page<T>>,
    ) -> Result<(), Failure> {
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        let mut shown = Page { items: Vec::new(), next_cursor: self.cursor };
        loop {
            let wanted = (limit - shown.items.len()).min(LARGEST_PAGE) as u32;
            let page = patiently(&get, ListPage { limit: Some(wanted), cursor: shown.next_cursor }).await?;
            shown.items.extend(page.items);
            // Where the limit cuts the list short, this cursor is where it goes on.
            shown.next_cursor = page.next_cursor;
            let Some(cursor) = shown.next_cursor.as_ref().filter(|_| shown.items.len() >= limit) else {
                if shown.next_cursor.is_some() {
                    continue;
                }
                return output.list(&shown, &shown.items);
            };
            output.list(&shown, &shown.items)?;
            output::notice(&output::printable(&format!(
                "{limit} shown; there are more: go on with --cursor {cursor}"
            )));
            return Ok(());
        }
    }
}

/// The first item of a whole list that is meant.
pub async fn find<T>(
    get: impl AsyncFn(ListPage) -> client::Result<Page<T>>,
    is_meant: impl Fn(&T) -> bool,
) -> Result<Option<T>, Failure> {
    let mut cursor = None;
    loop {
        let page = patiently(&get, ListPage { limit: Some(LARGEST_PAGE as u32), cursor }).await?;
        let found = page.items.into_iter().find(&is_meant);
        cursor = page.next_cursor;
        if found.is_some() || cursor.is_none() {
            return Ok(found);
        }
    }
}

/// One page. In the middle of a list, too many requests are no reason to lose what there is already.
async fn patiently<T>(
    get: &impl AsyncFn(ListPage) -> client::Result<Page<T>>,
    page: ListPage,
) -> client::Result<Page<T>> {
    for _ in 0..PATIENCE {
        match get(page.clone()).await {
            Err(client::Error::Refused(problem)) if problem.status == 429 && page.cursor.is_some() => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            outcome => return outcome,
        }
    }
    get(page).await
}
