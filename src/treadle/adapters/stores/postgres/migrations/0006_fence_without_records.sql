-- The fenced append: epoch, head, records, summary, lease, answer and live text in one commit. `p_first` is the number
-- behind the head that the caller knows, also when there are no records: a summary that is written alone is fenced, too.
-- (An earlier Treadle passes 0 when there are none.)
CREATE OR REPLACE FUNCTION treadle_append(
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
      WHEN cardinality(p_records) > 0 THEN treadle_has(v.no, p_records)
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
