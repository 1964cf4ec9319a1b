//! How long a server is waited for, and when it is asked again.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::RemoteOptions;
use super::client::StoredObject;
use super::error::RemoteError;
use super::failure::AttemptFailure;
use super::location::Location;
use crate::source::len_u64;

/// How long is waited before an attempt is made again; before each other, twice as long, but not longer than this: a server that is back
/// is not to be waited for much longer.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// How often the same is asked again after odd answers.
const ODD: u32 = 2;

/// How long nothing may come before the same is asked once more, at most.
const SILENT: Duration = Duration::from_mins(1);

/// How long an attempt may take if the server is waited for without end.
const ATTEMPT: Duration = Duration::from_mins(10);

/// A download of a whole file takes so many times as long at most as the timeout, however many attempts it takes.
const DOWNLOAD: u32 = 20;

/// How long a request is made again: until its time is over, which is one budget for all attempts and the waits between them. Without end, if
/// the time is [`RemoteOptions::FOR_EVER`](super::RemoteOptions::FOR_EVER).
#[derive(Clone)]
pub(super) struct Patience {
    timeout: Duration,
    /// When the next bytes must have come.
    deadline: Instant,
    /// How long is waited before the next attempt, unless the server wants more.
    wait: Duration,
    /// Odd answers that have come one after the other.
    odd: u32,
    /// When it ends, however many bytes have come until then.
    end: Option<Instant>,
}

impl Patience {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            deadline: after(timeout),
            wait: FIRST_WAIT,
            odd: 0,
            end: None,
        }
    }

    /// The same for a download of a whole file, which a server that sends little by little could draw out for hours.
    pub(super) fn of_download(timeout: Duration) -> Self {
        Self {
            end: Some(after(timeout.saturating_mul(DOWNLOAD))),
            ..Self::new(timeout)
        }
    }

    /// Starts anew, because something has come.
    pub(super) fn renew(&mut self) {
        self.deadline = after(self.timeout);
        self.wait = FIRST_WAIT;
        self.odd = 0;
    }

    /// When it ends.
    fn over(&self) -> Instant {
        if self.timeout == RemoteOptions::FOR_EVER {
            return after(self.timeout);
        }
        self.end.map_or(self.deadline, |end| end.min(self.deadline))
    }

    /// How long nothing may come before the same is asked once more.
    fn silence(&self) -> Duration {
        let half = self.timeout.checked_div(2).unwrap_or_default();
        half.min(SILENT)
    }

    /// The answer to what `ask` asks, for which there is all the time that is left. After some time it is asked once more beside: an answer that
    /// was lost on the way never comes.
    pub(super) async fn answer<T, F>(&self, ask: impl Fn() -> F) -> Result<T, AttemptFailure>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let over = if self.timeout == RemoteOptions::FOR_EVER {
            after(ATTEMPT)
        } else {
            self.over()
        };
        let mut first = Box::pin(ask());
        let early = over.min(after(self.silence()));
        if let Ok(answer) = timeout_at(early, &mut first).await {
            return Ok(answer?);
        }
        let mut second = Box::pin(ask());
        let either = poll_fn(|context| match first.as_mut().poll(context) {
            // the first is asked on: it may only be slow
            Poll::Pending => second.as_mut().poll(context),
            answer @ Poll::Ready(_) => answer,
        });
        let answer = timeout_at(over, either).await;
        Ok(answer.map_err(|_| AttemptFailure::Stalled)??)
    }

    /// The next bytes of the body of an object, which `poll` gives; `None` at its end. If none come for some time, another attempt may go on
    /// from there.
    pub(super) async fn bytes<T: AsRef<[u8]>>(
        &self,
        poll: impl FnMut(&mut Context<'_>) -> Poll<Option<object_store::Result<T>>>,
        stored: &StoredObject,
    ) -> Result<Option<T>, AttemptFailure> {
        let until = self.over().min(after(self.silence()));
        let next = timeout_at(until, poll_fn(poll)).await;
        let bytes = next.map_err(|_| AttemptFailure::Stalled)?.transpose()?;
        let count = bytes.as_ref().map_or(0, |bytes| bytes.as_ref().len());
        stored.traffic.note_bytes(len_u64(count));
        Ok(bytes)
    }

    /// Waits until the next attempt at `at` may be made, if `failure` may pass and the time for it is not over.
    ///
    /// # Errors
    /// The failure as it is told, if there is to be no other attempt.
    pub(super) async fn wait_after(
        &mut self,
        failure: &AttemptFailure,
        at: &Location,
        stored: &StoredObject,
    ) -> Result<(), RemoteError> {
        let may_pass = failure.may_pass(stored.guesses());
        let wait = if !may_pass {
            None
        } else if failure.is_odd() {
            self.odd = self.odd.saturating_add(1);
            // a few times only: an object that really has changed gives the same answer each time
            (self.odd <= ODD).then_some(FIRST_WAIT)
        } else {
            self.again(failure.pause())
        };
        let waited = self.ended().unwrap_or(self.timeout);
        let told = failure.told(at, stored, waited);
        stored.traffic.note_failure(&told.to_string());
        let Some(wait) = wait else {
            let is_late = may_pass && !failure.is_odd();
            return Err(if is_late { told.at_last() } else { told });
        };
        log::debug!("tried again: {told}");
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// How long it has lasted, if it ends however many bytes come.
    fn ended(&self) -> Option<Duration> {
        let waited = self.timeout.saturating_mul(DOWNLOAD);
        let is_over = self.end.is_some_and(|end| end <= Instant::now());
        is_over.then_some(waited)
    }

    /// How long to wait before the next attempt, if there is to be one: as long as the server `wants`, but so that there is time for another
    /// attempt.
    fn again(&mut self, wants: Option<Duration>) -> Option<Duration> {
        let left = self.over().saturating_duration_since(Instant::now());
        let wait = wants.unwrap_or_default().max(self.wait);
        // a server under load recovers sooner if its clients ask less and less often
        self.wait = self.wait.saturating_mul(2).min(LONGEST_WAIT);
        // a server that wants us to wait longer than there is time gets one more try before the end
        let most = left.checked_div(4)?.saturating_mul(3);
        (left > FIRST_WAIT).then_some(wait.min(most))
    }
}

/// The instant so long from now; a day from now if it can't be told.
fn after(wait: Duration) -> Instant {
    const DAY: Duration = Duration::from_hours(24);
    let now = Instant::now();
    now.checked_add(wait)
        .or_else(|| now.checked_add(DAY))
        .unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_ends_whatever_has_come() {
        let timeout = Duration::from_secs(30);
        let mut patience = Patience::of_download(timeout);
        assert!(patience.end.unwrap() > after(timeout * (DOWNLOAD - 1)));
        assert!(patience.over() > Instant::now());
        assert!(patience.ended().is_none() && patience.again(None).is_some());
        // as if so much time had passed
        patience.end = Some(Instant::now());
        patience.renew();
        assert!(patience.over() <= Instant::now());
        assert_eq!(patience.again(None), None);
        assert_eq!(patience.ended(), Some(timeout * DOWNLOAD));
        let mut reading = Patience::new(timeout);
        reading.renew();
        assert!(reading.ended().is_none() && reading.again(None).is_some());
    }

    /// After five attempts, which took three seconds, a read failed, whatever the timeout was.
    #[test]
    fn attempts_go_on_until_the_time_is_over_and_as_slowly_as_the_server_wants() {
        let timeout = Duration::from_secs(30);
        let mut patience = Patience::new(timeout);
        for _ in 0..100 {
            assert!(patience.again(None).unwrap() <= LONGEST_WAIT);
        }
        let wants = Duration::from_secs(4);
        assert_eq!(patience.again(Some(wants)), Some(wants));
        // there is time for another attempt
        let long = patience.again(Some(timeout * 9)).unwrap();
        assert!(timeout / 2 < long && long < timeout, "{long:?}");
        let mut patience = Patience::new(RemoteOptions::FOR_EVER);
        patience.deadline = Instant::now();
        assert_eq!(patience.again(Some(timeout * 9)), Some(timeout * 9));
    }
}
