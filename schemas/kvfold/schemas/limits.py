"""Every limit of kvfold in one place, related by asserts at import.

A limit that a decision depends on is a constant of the record type's version: it never changes for records that
are already in the log. Sizes are bytes unless the name says otherwise.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BATCH_BYTES_MAX",
    "BATCH_KEYS_MAX",
    "BATCH_RECORDS_MAX",
    "BODY_DRAIN_BYTES_MAX",
    "CAPSULE_BATCH_OPERATIONS_MAX",
    "CAPSULE_KEY_BYTES_MAX",
    "CAPSULE_LIST_KEYS_MAX",
    "CAPSULE_QUOTA_BYTES_DEFAULT",
    "CAPSULE_VALUE_BYTES_MAX",
    "CHANGES_KEYS_PAGE",
    "CHANGES_OFFSETS_PAGE",
    "CHANGES_RECORDS_PAGE",
    "CHANGES_VALUE_BYTES_INLINE",
    "CLOUDEVENTS_BATCH_EVENTS_MAX",
    "DEDUPE_WINDOW_MS",
    "DEPLOYMENT_KEY_BYTES_MAX",
    "DEPLOYMENT_NAME_BYTES_MAX",
    "DEPLOYMENT_VALUE_BYTES_MAX",
    "DETAIL_CHARS_MAX",
    "HEADER_TEXT_BYTES_MAX",
    "INT64_MAX",
    "JSON_BODY_BYTES_MAX",
    "JSON_DEPTH_MAX",
    "NAME_PART_BYTES_MAX",
    "OPEN_WAIT_SECONDS_MAX",
    "ORCHESTRATION_CHILDREN_MAX",
    "ORCHESTRATION_DATA_BYTES_MAX",
    "ORCHESTRATION_ERROR_BYTES_MAX",
    "ORCHESTRATION_EVENTS_WAITING_MAX",
    "ORCHESTRATION_HISTORY_EVENTS_MAX",
    "ORCHESTRATION_KV_KEYS_MAX",
    "ORCHESTRATION_KV_KEY_BYTES_MAX",
    "ORCHESTRATION_KV_VALUE_BYTES_MAX",
    "ORCHESTRATION_NAME_BYTES_MAX",
    "ORCHESTRATION_STATUS_BYTES_MAX",
    "PAGE_LIMIT_DEFAULT",
    "PAGE_LIMIT_MAX",
    "RECORD_BYTES_MAX",
    "RECORD_KEY_BYTES_MAX",
    "SECRET_ENVELOPE_OVERHEAD_MAX",
    "WATCHERS_MAX",
    "WATCH_QUEUE_BYTES_MAX",
]

INT64_MAX: Final = 2**63 - 1

# --- the log ---
RECORD_BYTES_MAX: Final = 2 * 1024 * 1024  # max.message.bytes of the topic, max_request_size of the producer
RECORD_KEY_BYTES_MAX: Final = 512
HEADER_TEXT_BYTES_MAX: Final = 8 * 1024  # one header's value; longer is malformed
JSON_BODY_BYTES_MAX: Final = 1024 * 1024
JSON_DEPTH_MAX: Final = 64
DETAIL_CHARS_MAX: Final = 512
DEDUPE_WINDOW_MS: Final = 7 * 24 * 60 * 60 * 1000

# --- orchestrations (000, "Size limits") ---
ORCHESTRATION_KV_KEYS_MAX: Final = 10
ORCHESTRATION_KV_VALUE_BYTES_MAX: Final = 16_384
ORCHESTRATION_KV_KEY_BYTES_MAX: Final = 256
ORCHESTRATION_NAME_BYTES_MAX: Final = 256  # instance ids; orchestration, activity and event names
ORCHESTRATION_DATA_BYTES_MAX: Final = 256 * 1024  # JSON of one input, output, result or event
ORCHESTRATION_STATUS_BYTES_MAX: Final = 256 * 1024  # custom status
ORCHESTRATION_ERROR_BYTES_MAX: Final = 16 * 1024  # one error's text
ORCHESTRATION_HISTORY_EVENTS_MAX: Final = 50_000  # of one execution
ORCHESTRATION_EVENTS_WAITING_MAX: Final = 10_000  # raised events that no code has waited for yet
ORCHESTRATION_CHILDREN_MAX: Final = 10_000  # of one instance, over all its executions

# --- capsules (002, "Key and value constraints") ---
NAME_PART_BYTES_MAX: Final = 128  # principal, capsule id
CAPSULE_KEY_BYTES_MAX: Final = 256
CAPSULE_VALUE_BYTES_MAX: Final = 1_048_576
CAPSULE_LIST_KEYS_MAX: Final = 1_024
CAPSULE_BATCH_OPERATIONS_MAX: Final = 1_024  # and as many conditions; the body is bounded as any JSON body
CAPSULE_QUOTA_BYTES_DEFAULT: Final = 64 * 1024 * 1024

# --- deployments (003, "The model") ---
DEPLOYMENT_NAME_BYTES_MAX: Final = 128  # deployment id, namespace
DEPLOYMENT_KEY_BYTES_MAX: Final = 1_024
DEPLOYMENT_VALUE_BYTES_MAX: Final = 1_048_576
SECRET_ENVELOPE_OVERHEAD_MAX: Final = 4 + 1 + 255 + 12 + 16  # magic, length, key id, nonce, tag

# --- reads and HTTP ---
PAGE_LIMIT_DEFAULT: Final = 100
PAGE_LIMIT_MAX: Final = 1_024
BODY_DRAIN_BYTES_MAX: Final = 8 * 1024 * 1024
CLOUDEVENTS_BATCH_EVENTS_MAX: Final = 1_000
OPEN_WAIT_SECONDS_MAX: Final = 8.0  # how long a key write or a position demand may wait

# --- watching ---
CHANGES_RECORDS_PAGE: Final = 256  # applied records in one page of changes
CHANGES_KEYS_PAGE: Final = 512  # once a page has so many keys, no further record is added
CHANGES_OFFSETS_PAGE: Final = 50_000  # a page looks no further, however few records applied
CHANGES_VALUE_BYTES_INLINE: Final = 4_096  # a larger value is fetched by itself, where somebody wants it
WATCHERS_MAX: Final = 10_000  # streams of one process
WATCH_QUEUE_BYTES_MAX: Final = 256 * 1024  # what waits for one watcher; beyond it reads again at its own pace

# --- the projector's batches ---
BATCH_RECORDS_MAX: Final = 4_000
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
BATCH_KEYS_MAX: Final = 16_384  # a capsule batch touches many keys with one record

assert CAPSULE_VALUE_BYTES_MAX < RECORD_BYTES_MAX, "the log's own limit must never bite first"
assert DEPLOYMENT_VALUE_BYTES_MAX + SECRET_ENVELOPE_OVERHEAD_MAX < RECORD_BYTES_MAX
assert JSON_BODY_BYTES_MAX + 32 * HEADER_TEXT_BYTES_MAX < RECORD_BYTES_MAX
assert CAPSULE_LIST_KEYS_MAX <= PAGE_LIMIT_MAX
assert JSON_BODY_BYTES_MAX * 3 // 4 < CAPSULE_VALUE_BYTES_MAX, "no value inside a capsule batch is too large"
assert BATCH_RECORDS_MAX <= BATCH_KEYS_MAX and 2 * CAPSULE_BATCH_OPERATIONS_MAX <= BATCH_KEYS_MAX
assert len("c:") + 2 * NAME_PART_BYTES_MAX + len(":capsule:") <= RECORD_KEY_BYTES_MAX
assert len("o:") + ORCHESTRATION_NAME_BYTES_MAX <= RECORD_KEY_BYTES_MAX
assert BATCH_BYTES_MAX > RECORD_BYTES_MAX
