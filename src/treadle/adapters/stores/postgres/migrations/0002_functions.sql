-- Each operation is one function, and so one round trip. It checks before it writes; a refusal is a word in the answer
-- and has changed nothing. Only a race for one Idempotency-Key, which shows at the very end, is an exception (TR001).

-- The database's clock in milliseconds. Tests bring their own.
CREATE FUNCTION treadle_now(p_now bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- The number of a change is that of its transaction. Transactions do not end in the order of their numbers: whoever
-- follows must stop before the lowest number that is still under way (treadle_settled), and so misses none.
CREATE FUNCTION treadle_change() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT change_base + pg_current_xact_id()::text::bigint FROM treadle_meta
$$;

CREATE FUNCTION treadle_settled() RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT change_base + pg_snapshot_xmin(pg_current_snapshot())::text::bigint FROM treadle_meta
$$;

-- How the commit of this transaction is to be waited for. What was acknowledged is published, so that no append may be
-- lost with the server: the lesser way still waits for this server's disk, only not for its replicas.
CREATE FUNCTION treadle_commit(p_durable boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_durable AND current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  ELSIF NOT p_durable AND current_setting('synchronous_commit') <> 'off' THEN
    PERFORM set_config('synchronous_commit', 'local', true);
  END IF;
END $$;

-- For what may be lost with the server, and is then done again.
CREATE FUNCTION treadle_commit_later() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
END $$;

CREATE TYPE treadle_packed AS (
  seq integer, time_ms bigint, type text, version smallint, epoch integer, packing smallint, crc integer, body bytea
);

CREATE TYPE treadle_line AS (
  status text, runnable boolean, wake_ms bigint, archived boolean, owner text, updated_ms bigint, title text,
  labels text[], summary bytea
);

CREATE TYPE treadle_answer AS (
  owner text, key text, request text, status smallint, body bytea, time_ms bigint
);

CREATE FUNCTION treadle_put(p_chat_no bigint, p_records treadle_packed[]) RETURNS void LANGUAGE sql AS $$
  INSERT INTO events (chat_no, time_ms, seq, epoch, crc, version, packing, type, body)
  SELECT p_chat_no, r.time_ms, r.seq, r.epoch, r.crc, r.version, r.packing, r.type, r.body FROM unnest(p_records) AS r
$$;

-- Whether exactly these records are in the log: after a connection was lost, whether the append had happened.
CREATE FUNCTION treadle_has(p_chat_no bigint, p_records treadle_packed[]) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT count(*) = cardinality(p_records) FROM unnest(p_records) AS r JOIN events AS e
  ON e.chat_no = p_chat_no AND e.seq = r.seq AND e.epoch = r.epoch AND e.time_ms = r.time_ms
  AND e.type = r.type AND e.crc = r.crc AND e.body = r.body
$$;

CREATE FUNCTION treadle_recall(p_owner text, p_key text) RETURNS SETOF treadle_answer LANGUAGE sql STABLE AS $$
  SELECT owner, key, request, status, body, time_ms FROM answers WHERE owner = p_owner AND key = p_key
$$;

CREATE FUNCTION treadle_answered(p_answer treadle_answer, p_oldest bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT EXISTS (
    SELECT 1 FROM answers WHERE owner = (p_answer).owner AND key = (p_answer).key AND time_ms >= p_oldest
  )
$$;

-- Old answers go, a little at a time; others that are at it are not waited for.
CREATE FUNCTION treadle_remember(p_answer treadle_answer, p_oldest bigint, p_sweep integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM answers WHERE owner = (p_answer).owner AND key = (p_answer).key AND time_ms < p_oldest;
  DELETE FROM answers WHERE (owner, key) IN (
    SELECT owner, key FROM answers WHERE time_ms < p_oldest ORDER BY time_ms LIMIT p_sweep FOR UPDATE SKIP LOCKED
  );
  INSERT INTO answers (owner, key, request, status, body, time_ms) VALUES (
    (p_answer).owner, (p_answer).key, (p_answer).request, (p_answer).status, (p_answer).body, (p_answer).time_ms
  ) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'already answered' USING ERRCODE = 'TR001';
  END IF;
END $$;

CREATE FUNCTION treadle_create(
  p_chat text, p_records treadle_packed[], p_line treadle_line, p_epoch integer,
  p_answer treadle_answer, p_oldest bigint, p_sweep integer, p_again boolean
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_no bigint;
BEGIN
  PERFORM treadle_commit(true);
  IF p_again THEN
    SELECT no INTO v_no FROM chats WHERE id = p_chat;
    IF v_no IS NOT NULL AND treadle_has(v_no, p_records) THEN
      RETURN 'done';
    END IF;
  END IF;
  IF (p_answer).key IS NOT NULL AND treadle_answered(p_answer, p_oldest) THEN
    RETURN 'answered';
  END IF;
  INSERT INTO chats (
    id, head, status, runnable, wake_ms, archived, owner, updated_ms, title, labels, summary, epoch, changed
  ) VALUES (
    p_chat, cardinality(p_records), p_line.status, p_line.runnable, p_line.wake_ms, p_line.archived, p_line.owner,
    p_line.updated_ms, p_line.title, p_line.labels, p_line.summary, p_epoch, treadle_change()
  ) ON CONFLICT DO NOTHING RETURNING no INTO v_no;
  IF v_no IS NULL THEN
    RETURN 'exists';
  END IF;
  PERFORM treadle_put(v_no, p_records);
  IF (p_answer).key IS NOT NULL THEN
    PERFORM treadle_remember(p_answer, p_oldest, p_sweep);
  END IF;
  RETURN 'done';
END $$;

-- The fenced append: epoch, head, records, summary, lease, answer and live text in one commit. `p_first` is 0 when there
-- are no records.
CREATE FUNCTION treadle_append(
  p_chat text, p_first integer, p_records treadle_packed[], p_line treadle_line, p_durable boolean,
  p_epoch integer, p_worker text, p_take_epoch integer, p_take_worker text, p_release boolean,
  p_answer treadle_answer, p_oldest bigint, p_sweep integer, p_drop boolean,
  p_lease_ms bigint, p_clock bigint, p_again boolean,
  OUT outcome text, OUT head integer, OUT epoch integer
) LANGUAGE plpgsql AS $$
DECLARE
  v chats%ROWTYPE;
  v_happened boolean := false;
BEGIN
  PERFORM treadle_commit(p_durable);
  SELECT * INTO v FROM chats AS c WHERE c.id = p_chat FOR UPDATE;
  head := v.head;
  epoch := v.epoch;
  IF p_again AND v.no IS NOT NULL THEN
    v_happened := CASE
      WHEN p_first > 0 THEN treadle_has(v.no, p_records)
      WHEN p_take_epoch IS NOT NULL THEN v.epoch = p_take_epoch AND v.worker IN ('', p_take_worker)
      ELSE p_release AND v.epoch = p_epoch AND v.worker = ''
    END;
  END IF;
  IF v_happened THEN
    outcome := 'done';
    RETURN;
  END IF;
  outcome := CASE
    WHEN (p_answer).key IS NOT NULL AND treadle_answered(p_answer, p_oldest) THEN 'answered'
    WHEN v.no IS NULL THEN 'not_found'
    WHEN p_take_epoch IS NOT NULL AND (
      p_take_epoch <> v.epoch + 1 OR (v.worker <> '' AND v.lease_until > treadle_now(p_clock))
    ) THEN 'busy'
    WHEN p_epoch IS NOT NULL AND (p_epoch <> v.epoch OR v.worker = '' OR v.worker <> p_worker) THEN 'lease_lost'
    WHEN p_first > 0 AND p_first <> v.head + 1 THEN 'head_moved'
    ELSE 'done'
  END;
  IF outcome <> 'done' THEN
    RETURN;
  END IF;
  PERFORM treadle_put(v.no, p_records);
  IF p_take_epoch IS NOT NULL THEN
    v.epoch := p_take_epoch;
    v.worker := p_take_worker;
    v.lease_until := treadle_now(p_clock) + p_lease_ms;
    v.token := NULL;
  END IF;
  IF p_release AND (p_epoch IS NOT NULL OR p_take_epoch IS NOT NULL) THEN
    v.worker := '';
  END IF;
  UPDATE chats AS c SET
    head = v.head + cardinality(p_records), status = p_line.status, runnable = p_line.runnable,
    wake_ms = p_line.wake_ms, archived = p_line.archived, owner = p_line.owner, updated_ms = p_line.updated_ms,
    title = p_line.title, labels = p_line.labels, summary = p_line.summary, changed = treadle_change(),
    epoch = v.epoch, worker = v.worker, lease_until = v.lease_until, token = v.token
  WHERE c.no = v.no;
  IF p_drop THEN
    DELETE FROM deltas AS d WHERE d.chat_no = v.no;
  END IF;
  IF (p_answer).key IS NOT NULL THEN
    PERFORM treadle_remember(p_answer, p_oldest, p_sweep);
  END IF;
END $$;

CREATE FUNCTION treadle_claim_chat(
  p_chat text, p_worker text, p_token uuid, p_lease_ms bigint, p_clock bigint,
  OUT outcome text, OUT chat text, OUT epoch integer, OUT head integer
) LANGUAGE plpgsql AS $$
DECLARE
  v_now bigint := treadle_now(p_clock);
BEGIN
  PERFORM treadle_commit(false);
  UPDATE chats AS c SET epoch = c.epoch + 1, worker = p_worker, lease_until = v_now + p_lease_ms, token = p_token
  WHERE c.id = p_chat AND (c.worker = '' OR c.lease_until <= v_now OR c.token = p_token)
  RETURNING 'done', c.id, c.epoch, c.head INTO outcome, chat, epoch, head;
  IF outcome IS NULL THEN
    SELECT 'busy', c.worker, c.epoch, c.head INTO outcome, chat, epoch, head FROM chats AS c WHERE c.id = p_chat;
  END IF;
END $$;

-- Any chat that has something to do. Owners are looked at in turn, those with the fewest live leases first; the cost is
-- that of the owners who have something to do and of the live leases, not of the chats that wait. A chat that somebody
-- else is taking at this moment is passed over.
CREATE FUNCTION treadle_claim(
  p_worker text, p_token uuid, p_wall bigint, p_lease_ms bigint, p_clock bigint,
  OUT outcome text, OUT chat text, OUT epoch integer, OUT head integer
) LANGUAGE plpgsql AS $$
DECLARE
  v_now  bigint := treadle_now(p_clock);
  v_from record;
  v_no   bigint;
BEGIN
  PERFORM treadle_commit(false);
  FOR v_from IN
    WITH RECURSIVE owners AS (
      (SELECT c.owner FROM chats AS c WHERE c.runnable AND NOT c.archived ORDER BY c.owner LIMIT 1)
      UNION ALL
      SELECT (
        SELECT c.owner FROM chats AS c WHERE c.runnable AND NOT c.archived AND c.owner > o.owner
        ORDER BY c.owner LIMIT 1
      ) FROM owners AS o WHERE o.owner IS NOT NULL
    ), waiting AS (
      SELECT o.owner, true AS runnable, (
        SELECT c.updated_ms FROM chats AS c WHERE c.runnable AND NOT c.archived AND c.owner = o.owner
        AND (c.worker = '' OR c.lease_until <= v_now) ORDER BY c.updated_ms LIMIT 1
      ) AS since FROM owners AS o WHERE o.owner IS NOT NULL
      UNION ALL
      SELECT c.owner, false, min(c.wake_ms) FROM chats AS c WHERE NOT c.runnable AND c.wake_ms > 0
      AND c.wake_ms <= p_wall AND NOT c.archived AND (c.worker = '' OR c.lease_until <= v_now) GROUP BY c.owner
    ), busy AS (
      SELECT c.owner, count(*) AS chats FROM chats AS c WHERE c.worker <> '' AND c.lease_until > v_now GROUP BY c.owner
    )
    SELECT w.owner, w.runnable FROM waiting AS w LEFT JOIN busy AS b USING (owner) WHERE w.since IS NOT NULL
    ORDER BY coalesce(b.chats, 0), w.since
  LOOP
    IF v_from.runnable THEN
      SELECT c.no INTO v_no FROM chats AS c WHERE c.runnable AND NOT c.archived AND c.owner = v_from.owner
      AND (c.worker = '' OR c.lease_until <= v_now) ORDER BY c.updated_ms, c.no LIMIT 1 FOR UPDATE SKIP LOCKED;
    ELSE
      SELECT c.no INTO v_no FROM chats AS c WHERE NOT c.runnable AND c.wake_ms > 0 AND c.wake_ms <= p_wall
      AND NOT c.archived AND c.owner = v_from.owner AND (c.worker = '' OR c.lease_until <= v_now)
      ORDER BY c.wake_ms, c.no LIMIT 1 FOR UPDATE SKIP LOCKED;
    END IF;
    IF v_no IS NOT NULL THEN
      UPDATE chats AS c SET epoch = c.epoch + 1, worker = p_worker, lease_until = v_now + p_lease_ms, token = p_token
      WHERE c.no = v_no RETURNING 'done', c.id, c.epoch, c.head INTO outcome, chat, epoch, head;
      RETURN;
    END IF;
  END LOOP;
END $$;

-- What a claim got whose answer never arrived.
CREATE FUNCTION treadle_claimed(
  p_worker text, p_token uuid, OUT outcome text, OUT chat text, OUT epoch integer, OUT head integer
) LANGUAGE sql STABLE AS $$
  SELECT 'done', c.id, c.epoch, c.head FROM chats AS c WHERE c.worker <> '' AND c.worker = p_worker AND c.token = p_token
$$;

CREATE FUNCTION treadle_renew(
  p_chats text[], p_epochs integer[], p_workers text[], p_lease_ms bigint, p_clock bigint
) RETURNS TABLE (chat text, epoch integer) LANGUAGE plpgsql AS $$
DECLARE
  v_until bigint := treadle_now(p_clock) + p_lease_ms;
  v_held  bigint[];
BEGIN
  PERFORM treadle_commit_later();
  SELECT array_agg(held.no) INTO v_held FROM (
    SELECT c.no FROM unnest(p_chats, p_epochs, p_workers) AS l (chat, epoch, worker) JOIN chats AS c
    ON c.id = l.chat AND c.epoch = l.epoch AND c.worker = l.worker WHERE c.worker <> '' ORDER BY c.no FOR UPDATE OF c
  ) AS held;
  RETURN QUERY UPDATE chats AS c SET lease_until = v_until WHERE c.no = ANY (v_held) RETURNING c.id, c.epoch;
END $$;

CREATE FUNCTION treadle_release(p_chats text[], p_epochs integer[], p_workers text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  v_held bigint[];
BEGIN
  PERFORM treadle_commit_later();
  SELECT array_agg(held.no) INTO v_held FROM (
    SELECT c.no FROM unnest(p_chats, p_epochs, p_workers) AS l (chat, epoch, worker) JOIN chats AS c
    ON c.id = l.chat AND c.epoch = l.epoch AND c.worker = l.worker WHERE c.worker <> '' ORDER BY c.no FOR UPDATE OF c
  ) AS held;
  UPDATE chats AS c SET worker = '' WHERE c.no = ANY (v_held);
END $$;

CREATE FUNCTION treadle_save_snapshot(p_chat text, p_seq integer, p_body bytea) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM treadle_commit_later();
  INSERT INTO snapshots (chat_no, seq, body) SELECT c.no, p_seq, p_body FROM chats AS c WHERE c.id = p_chat
  ON CONFLICT (chat_no) DO UPDATE SET seq = excluded.seq, body = excluded.body;
  RETURN FOUND;
END $$;

CREATE FUNCTION treadle_put_deltas(
  p_chats text[], p_epochs integer[], p_turns integer[], p_numbers integer[], p_payloads bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM treadle_commit_later();
  INSERT INTO deltas (chat_no, epoch, turn, number, payload)
  SELECT c.no, d.epoch, d.turn, d.number, d.payload
  FROM unnest(p_chats, p_epochs, p_turns, p_numbers, p_payloads) AS d (chat, epoch, turn, number, payload)
  JOIN chats AS c ON c.id = d.chat AND c.epoch = d.epoch AND c.worker <> ''
  ON CONFLICT DO NOTHING;
END $$;

CREATE FUNCTION treadle_put_part(p_upload bigint, p_part integer, p_data bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM treadle_commit_later();
  INSERT INTO blob_parts (upload, part, data) VALUES (p_upload, p_part, p_data) ON CONFLICT DO NOTHING;
END $$;

-- The blob is there from here on; its parts went into the WAL before it. Parts that were brought in vain go.
CREATE FUNCTION treadle_put_blob(p_digest bytea, p_upload bigint, p_size bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM treadle_commit(true);
  INSERT INTO blobs (digest, upload, size) VALUES (p_digest, p_upload, p_size) ON CONFLICT DO NOTHING;
  IF NOT FOUND AND (SELECT upload FROM blobs WHERE digest = p_digest) <> p_upload THEN
    DELETE FROM blob_parts WHERE upload = p_upload;
  END IF;
END $$;

-- A blob of one part, in one round trip.
CREATE FUNCTION treadle_put_small(p_digest bytea, p_data bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_upload bigint := nextval('blob_uploads');
BEGIN
  INSERT INTO blob_parts (upload, part, data) VALUES (v_upload, 0, p_data);
  PERFORM treadle_put_blob(p_digest, v_upload, length(p_data));
END $$;
