-- Tombstones of deleted chats: followers learn of the deletion from them. `summary` is the line that followers see.
CREATE TABLE deleted_chats (
  id      text    COLLATE "C" PRIMARY KEY,
  owner   text    COLLATE "C" NOT NULL,
  epoch   integer NOT NULL,
  changed bigint  NOT NULL,
  summary bytea   NOT NULL
);
CREATE INDEX deleted_chats_changed ON deleted_chats (changed);

-- All of the chats, or none. The rows are locked in one order, so that two deletions cannot wait for each other.
CREATE FUNCTION treadle_delete(
  p_chats text[], p_owner text, p_clock bigint, OUT outcome text, OUT chat text, OUT worker text
) LANGUAGE plpgsql AS $$
DECLARE
  v       chats%ROWTYPE;
  v_found chats[] := '{}';
BEGIN
  PERFORM treadle_commit(true);
  FOR v IN SELECT * FROM chats AS c WHERE c.id = ANY (p_chats) ORDER BY c.no FOR UPDATE LOOP
    v_found := v_found || v;
  END LOOP;
  SELECT f.id, f.worker INTO chat, worker FROM unnest(v_found) AS f WHERE p_owner IS NOT NULL AND f.owner <> p_owner;
  IF FOUND THEN
    outcome := 'not_found';
    RETURN;
  END IF;
  SELECT p.id INTO chat FROM unnest(p_chats) AS p (id) WHERE p.id NOT IN (SELECT f.id FROM unnest(v_found) AS f)
  AND NOT EXISTS (
    SELECT 1 FROM deleted_chats AS d WHERE d.id = p.id AND (p_owner IS NULL OR d.owner = p_owner)
  ) LIMIT 1;
  IF FOUND THEN
    outcome := 'not_found';
    RETURN;
  END IF;
  SELECT f.id, f.worker INTO chat, worker FROM unnest(v_found) AS f
  WHERE f.worker <> '' AND f.lease_until > treadle_now(p_clock) LIMIT 1;
  IF FOUND THEN
    outcome := 'busy';
    RETURN;
  END IF;
  FOREACH v IN ARRAY v_found LOOP
    DELETE FROM events AS e WHERE e.chat_no = v.no;
    DELETE FROM quarantine AS q WHERE q.chat_no = v.no;
    DELETE FROM snapshots AS s WHERE s.chat_no = v.no;
    DELETE FROM deltas AS d WHERE d.chat_no = v.no;
    DELETE FROM said AS s WHERE s.chat_no = v.no;
    DELETE FROM chats AS c WHERE c.no = v.no;
    INSERT INTO deleted_chats (id, owner, epoch, changed, summary) VALUES (
      v.id, v.owner, v.epoch, treadle_change(),
      convert_to(json_build_object('chat', v.id, 'owner', v.owner, 'deleted', true)::text, 'UTF8')
    );
  END LOOP;
  outcome := 'done';
END $$;

-- A chat of the same id replaces the tombstone, and its epochs are higher than those of the deleted chat.
CREATE OR REPLACE FUNCTION treadle_create(
  p_chat text, p_records treadle_packed[], p_line treadle_line, p_epoch integer,
  p_answer treadle_answer, p_oldest bigint, p_sweep integer, p_again boolean
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_no    bigint;
  v_epoch integer;
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
  DELETE FROM deleted_chats AS d WHERE d.id = p_chat RETURNING d.epoch INTO v_epoch;
  IF v_epoch > p_epoch THEN
    UPDATE chats AS c SET epoch = v_epoch WHERE c.no = v_no;
  END IF;
  PERFORM treadle_put(v_no, p_records);
  IF (p_answer).key IS NOT NULL THEN
    PERFORM treadle_remember(p_answer, p_oldest, p_sweep);
  END IF;
  RETURN 'done';
END $$;
