-- Takes a report's ratio ($3, null: none) and a window that an error has named ($4, null: none) into what is known of a model.
-- The ratio is a moving mean in which each report weighs a fifth.
insert into ai_model as m (tenant_id, model, tokens_ratio, reports, window_tokens)
values ($1, $2, $3::double precision, case when $3::double precision is null then 0 else 1 end, $4::bigint)
on conflict (tenant_id, model) do update
set tokens_ratio = case
        when $3 is null then m.tokens_ratio
        else coalesce(m.tokens_ratio * 0.8 + $3 * 0.2, $3)
    end,
    reports = m.reports + case when $3 is null then 0 else 1 end,
    window_tokens = coalesce($4, m.window_tokens),
    updated_ts = now()
returning tokens_ratio, reports
