//! The conversion of one call, from bytes to bytes, within the same limits as a review: time, size, memory,
//! panics.

use std::{panic::AssertUnwindSafe, time::Instant};

use futures::FutureExt;
use oz_runtime::with_causes;
use serde_json::value::RawValue;

use super::{
    conversions::{LIMIT, Served, WAIT},
    reviewer::{Arrival, Reply, Reviewer},
};
use crate::{
    conversion::{
        objects::{self, NotConverted},
        wire,
    },
    lean,
    metrics::ConversionOutcome,
    review::Cx,
};

/// The received object, the converted one, and its text.
const COPIES: usize = 3;

impl Reviewer {
    /// Answers a `ConversionReview`.
    pub(super) async fn convert(&self, served: &Served, body: &[u8], arrival: Arrival) -> Reply {
        let started = Instant::now();
        let share = self.conversions.share();
        let Some(_place) = share.begin(arrival.left(WAIT)).await else {
            return self.too_many_conversions();
        };
        let request = match wire::read(body) {
            Ok(request) => request,
            Err(error) => {
                self.metrics().refused("malformed");
                return Reply::text(400, with_causes(&error));
            }
        };
        let cost: usize = request.objects.iter().copied().map(lean::decoded).sum();
        let Some(_kept) = share.objects(cost * COPIES, arrival.left(WAIT)).await else {
            return self.too_many_conversions();
        };
        let (converted, outcome) = all(served, &self.cx(), &request, arrival).await;
        if let Err(message) = &converted {
            tracing::warn!(definition = %served.definition, %message, "a conversion failed");
        }
        let took = started.elapsed();
        self.metrics().converted(&served.definition, outcome, took);
        match wire::write(&request.uid, &converted) {
            Ok(body) => Reply { status: 200, body },
            Err(error) => Reply::text(500, format!("failed to write the response: {error}")),
        }
    }

    pub(super) fn too_many_conversions(&self) -> Reply {
        self.metrics().refused("overload");
        Reply::too_many()
    }
}

type Objects = Result<Vec<Box<RawValue>>, NotConverted>;

/// Converts all objects, or returns the first failure.
async fn all(
    served: &Served,
    cx: &Cx,
    request: &wire::Request<'_>,
    arrival: Arrival,
) -> (Objects, ConversionOutcome) {
    let definition = &served.definition;
    let group = request.desired.split_once('/').map(|(group, _)| group);
    if group.is_none() || group != served.conversion.group() {
        let misdirected = NotConverted::Misdirected {
            to: request.desired.to_string(),
            definition: definition.to_string(),
        };
        return (Err(misdirected), ConversionOutcome::Failed);
    }
    let each = async {
        let mut converted = Vec::with_capacity(request.objects.len());
        for raw in &request.objects {
            let handler = served.conversion.handler.as_ref();
            converted.push(objects::convert(handler, cx, raw, &request.desired).await?);
        }
        Ok(converted)
    };
    let ended = |ended| {
        Err(NotConverted::Incomplete {
            definition: definition.to_string(),
            ended,
        })
    };
    let limit = arrival.left(LIMIT);
    match tokio::time::timeout(limit, AssertUnwindSafe(each).catch_unwind()).await {
        Ok(Ok(Ok(objects))) => (Ok(objects), ConversionOutcome::Converted),
        Ok(Ok(Err(error))) => (Err(error), ConversionOutcome::Failed),
        Ok(Err(_panic)) => (ended("panicked"), ConversionOutcome::Panicked),
        Err(_elapsed) => (ended("took too long"), ConversionOutcome::TimedOut),
    }
}
