-- Up to where changes can be followed: the lowest number of a transaction that was under way when the snapshot was
-- taken and may have changed a chat. Transactions of others, in this database or in any other one of the server, hold
-- nothing up. Each of ours locks the table `chats` before it has a number, and until its end: what holds a number and
-- no such lock is none of ours. What has ended since the snapshot counts as ours, for this once.
CREATE OR REPLACE FUNCTION treadle_settled() RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT m.change_base + coalesce((
    WITH locks AS MATERIALIZED (
      SELECT l.virtualtransaction, l.locktype, l.transactionid, l.mode FROM pg_locks AS l
      WHERE l.granted AND (l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' OR l.locktype = 'relation'
        AND l.relation = 'chats'::regclass AND l.mode IN ('RowShareLock', 'RowExclusiveLock')
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
    ), foreign_numbers AS (
      SELECT l.transactionid::text::bigint AS number FROM locks AS l WHERE l.locktype = 'transactionid' AND NOT EXISTS (
        SELECT 1 FROM locks AS o WHERE o.locktype = 'relation' AND o.virtualtransaction = l.virtualtransaction
      )
    )
    SELECT min(x.number) FROM (
      SELECT pg_snapshot_xip(pg_current_snapshot())::text::bigint AS number
    ) AS x WHERE x.number & 4294967295 NOT IN (SELECT f.number FROM foreign_numbers AS f)
  ), pg_snapshot_xmax(pg_current_snapshot())::text::bigint) FROM treadle_meta AS m
$$;
