-- Calibrates a model with a report's ratio ($3, null: none) and a window that an error has reported
-- ($4, null: none). The ratio is a moving average in which each report weighs a fifth. A call that
-- has read more ($5, null: none) than the learnt window proves the window wrong: it is deleted. At
-- most $6 models of a tenant are stored. No row: this one is not stored.
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
