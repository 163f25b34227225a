//! The one list of cases. A case that is not on it does not compile without a
//! warning, and no store can leave one out.

use super::Case;

crate::__conformance_cases! { __conformance_list () }

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ($callback:ident $arguments:tt) => {
        $crate::$callback! {
            $arguments
            claim {
                a_fresh_claim_is_attempt_one
                a_fresh_claim_writes_a_record_in_progress
                a_claim_is_judged_by_the_stores_clock
                two_keys_know_nothing_of_each_other
                keys_that_differ_in_case_are_two
                a_second_claim_is_in_flight
                a_claim_that_met_a_lease_leaves_it_alone
                a_completed_record_answers_the_same_request
                a_policy_that_refuses_a_second_run_still_replays
                a_record_without_a_fingerprint_answers_every_request
                a_request_without_a_fingerprint_meets_every_record
            }
            order {
                a_reuse_is_told_before_in_flight
                a_reuse_is_told_before_a_completed_record
                a_reuse_is_told_before_a_takeover
                a_reuse_of_an_unconfirmed_claim_is_in_flight
                expiry_is_told_before_a_reuse
                an_expired_record_answers_like_the_archive
                a_record_expires_when_its_ttl_is_over
                an_expired_attempt_without_outcome_has_status_0
                without_an_archive_an_expired_key_runs_again
                a_live_lease_outlives_the_ttl
            }
            scheme {
                a_record_of_another_scheme_asks_for_its_own
                a_recomputed_fingerprint_is_compared
                a_takeover_writes_its_own_scheme
                an_expired_record_asks_for_no_scheme
                an_unconfirmed_claim_asks_for_no_scheme
                a_scheme_of_a_later_version_accuses_nobody
                another_version_of_a_custom_function_counts_as_equal
                a_long_fingerprint_is_kept_whole
            }
            owner {
                a_claim_made_twice_is_its_own
                a_takeover_made_twice_is_one_attempt
                a_lapsed_claim_made_again_is_its_own
                an_unconfirmed_claim_made_again_stays_unconfirmed
                an_unconfirmed_claim_made_again_has_to_be_confirmed
                a_confirmed_claim_made_again_stays_confirmed
                a_completed_claim_made_again_is_completed
                a_claim_made_again_after_its_release_is_fresh
            }
            age {
                a_key_from_ahead_lives_as_much_longer
                a_key_from_behind_lives_from_now
                only_an_old_timestamp_asks_the_archive
                by_default_a_key_without_a_timestamp_asks_nothing
                all_keys_asks_unless_the_key_is_young
                where_any_record_may_be_gone_the_youngest_key_is_asked_about
                without_an_archive_no_key_asks
                a_timestamp_over_a_day_ahead_is_refused
                all_keys_takes_a_timestamp_from_ahead
                a_timestamp_over_ten_years_ahead_is_none
                a_required_timestamp_that_is_missing_is_refused
            }
            lease {
                a_lapsed_lease_is_taken_over
                every_takeover_is_one_attempt_more
                a_takeover_does_not_depend_on_the_lease_it_wants
                a_lease_of_no_time_is_lapsed_at_once
                a_takeover_asks_the_archive_whatever_the_key
                a_takeover_runs_to_the_end
                a_refusing_policy_leaves_a_lapsed_record
                a_refusing_policy_still_meets_a_live_lease
                a_lapsed_unconfirmed_claim_never_ran
            }
            renew {
                a_renewed_lease_runs_from_now
                a_renewal_keeps_a_record_alive_past_its_ttl
                many_renewals_are_answered_in_order
                no_renewals_are_no_answers
                one_lease_twice_in_a_call_is_no_error
                a_renewal_confirms_a_claim
                a_confirmed_claim_that_lapses_is_taken_over
                a_lapsed_lease_can_be_renewed_until_the_takeover
                an_expired_record_cannot_be_renewed
                a_renewal_writes_no_record
            }
            complete {
                a_completion_is_recorded
                a_completion_of_nothing_is_stale
                a_completion_by_another_token_is_stale
                a_completion_after_a_takeover_is_stale
                a_lapsed_lease_can_be_completed_until_the_takeover
                a_repeated_completion_succeeds_and_changes_nothing
                an_expired_attempt_cannot_be_completed
                a_live_lease_can_be_completed_past_the_ttl
                a_completion_keeps_the_time_of_expiry
                a_key_that_expired_can_be_run_anew
            }
            replay {
                every_byte_value_is_replayed
                odd_json_is_replayed_as_it_was
                an_empty_body_is_not_a_missing_one
                a_response_that_was_not_kept_leaves_its_status_and_id
                a_large_body_is_replayed
                repeated_headers_keep_their_order
                header_values_are_bytes
                many_headers_are_replayed
                every_status_is_replayed
                the_longest_resource_id_is_kept
            }
            release {
                a_released_first_attempt_is_absent
                a_released_later_attempt_is_remembered
                a_released_token_owns_nothing_any_more
                a_second_release_changes_nothing
                a_release_by_another_token_is_stale
                a_release_after_a_takeover_is_stale
                a_completed_record_cannot_be_released
                a_lapsed_first_attempt_can_be_released
                an_unconfirmed_claim_can_be_released
                a_release_frees_its_own_key_only
            }
            amend {
                a_lapsed_record_takes_the_outcome
                only_a_lapsed_record_takes_it
                nothing_ran_under_an_unconfirmed_claim
                an_amended_attempt_owns_nothing_any_more
                an_expired_record_takes_the_outcome
                a_record_takes_one_outcome
            }
            sweep {
                with_nothing_expired_a_sweep_moves_nothing
                an_expired_record_becomes_a_tombstone
                an_attempt_without_outcome_is_archived_with_status_0
                an_unconfirmed_claim_leaves_no_tombstone
                without_an_archive_expired_records_are_deleted
                a_record_inside_its_window_stays
                a_live_lease_does_not_hide_what_is_behind_it
                a_renewed_lease_is_not_swept
                a_sweep_takes_the_oldest_first
                sweeps_end_when_nothing_is_left
                what_was_archived_already_is_still_removed
                a_sweep_whose_archive_fails_keeps_the_records
                a_swept_key_is_unknown_to_the_store
            }
            two_phases {
                expired_records_are_listed_oldest_first
                a_listed_record_tells_all_that_is_archived
                an_unconfirmed_claim_is_listed_as_such
                a_live_lease_is_not_listed
                listed_records_are_removed_once
                a_record_that_took_an_outcome_stays
                a_record_that_was_claimed_anew_stays
                a_record_that_its_owner_claimed_again_stays
                a_record_that_differs_from_the_listed_one_stays
                only_the_same_records_are_counted
                a_sweep_in_two_phases_moves_like_any_other
                a_sweep_into_another_database_moves_the_records
                a_sweep_that_was_overtaken_looks_again
                a_record_that_changes_during_a_sweep_stays
            }
            sweep_race {
                many_sweepers_move_every_record_once
                many_sweepers_without_an_archive_delete_each_once
                a_late_retry_never_slips_past_a_sweep
                a_completion_that_races_a_sweep_is_not_lost
                an_amendment_that_races_a_sweep_is_not_lost
            }
            inspect {
                records_are_counted_by_state
                an_empty_store_counts_nothing
                the_backlog_is_what_a_sweep_moves
                a_live_lease_past_its_ttl_is_no_backlog
                a_record_in_progress_is_told
                a_completed_record_is_told_without_its_answer
                a_completion_leaves_its_moment
                a_late_completion_leaves_its_own_moment
                an_amendment_leaves_its_moment
                a_key_that_runs_anew_has_no_moment
                claims_are_counted_by_the_minute
                the_published_ttls_are_told
                a_closed_store_tells_nothing
            }
            open_at {
                what_runs_is_open_from_its_claim_on
                what_lapsed_is_open
                a_takeover_is_open_from_the_first_claim_on
                what_never_ran_is_not_open
                what_was_completed_by_then_is_not_open
                what_was_completed_later_was_open
                what_was_amended_later_was_open
                what_expired_is_open_until_it_is_swept
                the_oldest_are_told_first_and_no_more_than_asked
            }
            erase {
                an_erased_answer_is_gone_and_the_rest_stays
                a_repeat_after_an_erasure_is_told_that_it_was_not_kept
                an_erased_record_expires_and_is_swept_like_any_other
                there_is_nothing_to_erase_twice
                only_a_completed_record_has_an_answer_to_erase
                an_erasure_touches_its_own_key_only
            }
            inspect_archive {
                an_empty_archive_counts_nothing
                rows_are_counted_by_month
                no_column_can_hold_a_payload
                a_key_used_in_two_windows_has_two_rows
                the_newest_row_is_the_one_that_expired_last
                rows_are_counted_from_a_moment_on
                archived_rows_were_open_within_their_window
                an_archived_outcome_may_have_been_open_for_as_long_as_a_request_runs
                the_oldest_archived_are_told_first_and_no_more_than_asked
                archived_claims_are_counted_by_the_minute
                a_swept_record_was_open_as_the_archive_tells_it
            }
            archive {
                a_row_is_found_as_it_was_inserted
                an_unknown_key_is_not_found
                a_row_that_is_there_already_stays
                an_unknown_outcome_takes_a_later_one
                one_row_twice_in_an_insertion_is_no_error
                many_rows_go_in_at_once
                an_outcome_is_preferred_to_a_later_unknown
                of_two_outcomes_the_later_answers
                a_lookup_leaves_out_what_expired_before
                an_archived_unknown_outcome_can_be_amended
                only_an_unknown_outcome_can_be_amended
                the_latest_unknown_outcome_is_amended
                archive_handles_share_their_rows
            }
            retention {
                without_a_retention_rows_are_kept_for_ever
                only_rows_past_the_retention_are_pruned
                a_pruning_takes_the_oldest_first
                an_archive_is_pruned_as_time_goes_on
            }
            ttl {
                a_lone_process_hears_its_own
                the_smallest_of_all_processes_is_in_force
                a_process_replaces_its_notice
                a_stopped_process_counts_while_its_records_may_live
                the_largest_ttl_of_any_process_decides
                a_notice_that_is_published_again_stays_in_force
                a_notice_is_kept_to_the_microsecond
            }
            race {
                of_64_claims_one_wins
                of_64_takeovers_one_wins
                of_64_claims_of_an_expired_key_one_wins
                a_claim_sent_64_times_is_one_attempt
                different_keys_do_not_wait_for_each_other
                claims_that_race_a_release_win_at_most_once
                a_released_attempt_keeps_its_number_in_a_race
                a_late_completion_or_a_takeover_wins
                a_late_renewal_or_a_takeover_wins
                an_amendment_or_a_takeover_wins
                one_of_many_completions_is_recorded
            }
            cancel {
                a_dropped_claim_blocks_nobody_for_good
                a_dropped_claim_can_be_made_again
                a_dropped_completion_is_whole_or_nothing
                a_dropped_release_can_be_made_again
                a_dropped_renewal_can_be_made_again
                a_dropped_amendment_is_whole_or_nothing
                a_dropped_sweep_loses_nothing
                a_dropped_insertion_can_be_made_again
            }
            handles {
                clones_share_identity
                clones_share_records
                another_process_sees_the_same_records
                the_clock_moves_for_all_handles
                times_are_kept_to_the_microsecond
                a_closed_store_is_unavailable
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_list {
    (() $($topic:ident { $($case:ident)* })*) => {
        pub(super) const CASES: &[Case] = &[
            $($(
                Case {
                    topic: stringify!($topic),
                    name: stringify!($case),
                    run: |fixture| Box::pin(super::$topic::$case(fixture)),
                },
            )*)*
        ];
    };
}
