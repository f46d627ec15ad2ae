-- Calibrates a model with what a usage report or an error shows. A parameter is null if it is not
-- shown.
-- - $3: the model's tokens per token counted here. A moving average is stored, in which each report
--   weighs a fifth.
-- - $4: the context window, as an error has reported it.
-- - $5: tokens that a call has read. If they exceed the stored window, the window is wrong, and is
--   deleted.
-- - $6: most models that are stored for a tenant. If there are as many, a new one is not stored,
--   and no row is returned.
insert into ai_model as m (tenant_id, model, tokens_ratio, reports, window_tokens)
select $1, $2, $3::double precision, case when $3::double precision is null then 0 else 1 end, $4::bigint
where exists (select from ai_model where tenant_id = $1 and model = $2)
   or (select count(*) from (select from ai_model where tenant_id = $1 limit $6) as known) < $6
on conflict (tenant_id, model) do update
set tokens_ratio = case
        when $3 is null then m.tokens_ratio
        else coalesce(m.tokens_ratio * 0.8 + $3 * 0.2, $3)
    end,
    reports = m.reports + case when $3 is null then 0 else 1 end,
    window_tokens = coalesce($4, case when $5::bigint > m.window_tokens then null else m.window_tokens end),
    updated_ts = now()
returning tokens_ratio, reports
