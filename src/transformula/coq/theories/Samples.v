(* Memorised tables by computation: at a sample every slot of the data token is a rational number up to a radius, and all
   tokens but the one whose score leads by g weigh at most 2^-k, k <= 23/16 g. Scores are whole numbers over one denominator. *)
Require Import Reals Lra Lia List NArith ZArith QArith Qreals Bool Coquelicot.Coquelicot.
Require Import Transformula.Transformer Transformula.Typed Transformula.Attention Transformula.Reading.
Import ListNotations.
Open Scope R_scope.

Definition ball := (Q * Q)%type.  (* centre, radius *)
Definition around (v : R) (b : ball) : Prop := Rabs (v - Q2R (fst b)) <= Q2R (snd b).
Definition plus (a b : ball) : ball := (Qred (fst a + fst b), Qred (snd a + snd b)).
Definition times (c : Q) (a : ball) : ball := (Qred (c * fst a), Qred (Qabs' c * snd a)).
Definition point (c : Q) : ball := (c, 0%Q).
Definition positive_part (a : ball) : ball := if Qle_bool 0 (fst a) then a else (0%Q, snd a).
Definition row_ball (m : matrix) (r : N) (f : N -> ball) : ball := fold_right (fun e a =>
  if N.eqb (at_row e) r then plus (times (rational e) (f (at_column e))) a else a) (point 0) m.
Definition listed (l : list ball) (k : N) : ball := nth (N.to_nat k) l (point 0).

(* Keys and values of a head at every token, over one denominator; the slots that it writes. *)
Record candidate := Candidate { which : N; keys_of : list Z; held_of : list Z }.
Record lookup := Lookup { unit_of : positive; slots_of : list N; candidates : list candidate }.
Definition scaled (d : positive) (q : Q) : Z := (Qnum q * Zpos d / Zpos (Qden q))%Z.
Definition exact (d : positive) (q : Q) : bool := Qeq_bool q (scaled d q # d).
Definition common (l : list Q) : positive := fold_right (fun q d => Z.to_pos (Z.lcm (Zpos (Qden q)) (Zpos d))) 1%positive l.
Definition of_token (m : matrix) (t : N) : matrix := filter (fun e => N.eqb (at_row e) t) m.
Definition at_token (M : model) (m : matrix) (rows : list N) (t : N) : list Q :=
  let s := of_token (memory M) t in map (fun r => row_sum m r (stored s t)) rows.
Definition prepare (M : model) (h : head) : option lookup :=
  let slots := nodup N.eq_dec (map at_row (value h)) in
  let read t := (at_token M (key h) (first (size h)) t, at_token M (value h) slots t) in
  let raw := map (fun t => (t, read t)) (first (tokens M)) in
  let d := common (flat_map (fun p => fst (snd p) ++ snd (snd p)) raw) in
  if forallb (fun p => forallb (exact d) (fst (snd p)) && forallb (exact d) (snd (snd p))) raw
     && match projection h with None => true | _ => false end
  then Some (Lookup d slots (map (fun p => Candidate (fst p) (map (scaled d) (fst (snd p))) (map (scaled d) (snd (snd p)))) raw))
  else None.

(* What a head adds at a sample, from its queries. *)
Fixpoint dot (a b : list Z) : Z := match a, b with x :: a, y :: b => (x * y + dot a b)%Z | _, _ => 0%Z end.
Record scored := Scored { token_of : N; score_of : Z; off_by : Z; values_of : list Z }.
Definition leader (l : list scored) : scored :=
  fold_right (fun p b => if Z.leb (score_of b) (score_of p) then p else b) (hd (Scored 0 0 0 []) l) l.
Definition lead (b : scored) (cap : Z) (l : list scored) : Z := fold_right (fun p g => if N.eqb (token_of p) (token_of b)
  then g else Z.min g (score_of b - off_by b - (score_of p + off_by p))) cap l.
Definition apart (l : list scored) (best : scored) (i : nat) : Z :=
  fold_right (fun p s => (Z.abs (nth i (values_of p) 0 - nth i (values_of best) 0) + s)%Z) 0%Z l.
Definition heard_balls (f : lookup) (queries : list ball) : option (list (N * ball)) :=
  let e := common (flat_map (fun b => [fst b; snd b]) queries) in
  let c := map (fun b => scaled e (fst b)) queries in
  let r := map (fun b => scaled e (snd b)) queries in
  let l := map (fun p => Scored (which p) (dot c (keys_of p)) (dot r (map Z.abs (keys_of p))) (held_of p)) (candidates f) in
  let best := leader l in
  let whole := (unit_of f * e)%positive in
  let g := lead best (300 * Zpos whole) l in
  let k := (23 * g / (16 * Zpos whole))%Z in
  if forallb (fun b => exact e (fst b) && exact e (snd b)) queries && Z.leb 0 g && match l with [] => false | _ => true end then
    Some (map (fun i => (nth i (slots_of f) 0%N, (Qred (nth i (values_of best) 0%Z # unit_of f),
      Qred (apart l best i # (unit_of f * Z.to_pos (2 ^ Z.of_nat (Z.to_nat k))))))) (seq 0 (length (slots_of f))))
  else None.
Definition found (l : list (N * ball)) (slot : N) : ball :=
  match find (fun p => N.eqb (fst p) slot) l with Some p => snd p | None => point 0 end.

(* The data token's slots through the blocks. *)
Fixpoint recall_heads (hs : list head) (fs : list lookup) (st : list ball) : option (list (list (N * ball))) :=
  match hs, fs with
  | [], [] => Some []
  | h :: hs, f :: fs =>
      match heard_balls f (map (fun r => row_ball (query h) r (listed st)) (first (size h))), recall_heads hs fs st with
      | Some l, Some ls => Some (l :: ls) | _, _ => None end
  | _, _ => None
  end.
Definition recall_layer (n : N) (f : layer) (st : list ball) : list ball :=
  let us := map (fun u => positive_part (plus (row_ball (hidden f) u (listed st)) (point (row_sum (hidden_bias f) u (fun _ => 1%Q)))))
                (units f) in
  map (fun k => plus (listed st k) (plus (row_ball (outgoing f) k (listed us)) (point (row_sum (outgoing_bias f) k (fun _ => 1%Q)))))
      (first n).
Definition recall_block (n : N) (b : block) (fs : list lookup) (st : list ball) : option (list ball) :=
  match attention b, recall_heads (heads b) fs st with
  | Softmax, Some ls =>
      let here := map (fun k => plus (listed st k) (fold_right (fun l a => plus (found l k) a) (point 0) ls)) (first n) in
      Some match feed_forward b with None => here | Some f => recall_layer n f here end
  | _, _ => None
  end.
Fixpoint recall_blocks (n : N) (bs : list block) (fs : list (list lookup)) (st : list ball) : option (list ball) :=
  match bs, fs with
  | [], [] => Some st
  | b :: bs, f :: fs => match recall_block n b f st with Some st => recall_blocks n bs fs st | None => None end
  | _, _ => None
  end.
Fixpoint all_some {A} (l : list (option A)) : option (list A) :=
  match l with [] => Some [] | Some a :: l => match all_some l with Some l => Some (a :: l) | None => None end | None :: _ => None end.
Definition prepared (M : model) : option (list (list lookup)) := all_some (map (fun b => all_some (map (prepare M) (heads b))) (blocks M)).
Definition start (M : model) (x : list Q) : list ball := map (fun k => plus (row_ball (embedding M) k (fun j => point (nth (N.to_nat j) x 0%Q)))
  (point (stored (memory M) 0 k))) (first (width M)).

(* A sample: inputs and outputs, each a numerator over a denominator, as Model.v writes them. *)
Definition numbers := list (Z * positive).
Definition rationals (l : numbers) : list Q := map (fun p => fst p # snd p) l.
Definition recalls (M : model) (fs : list (list lookup)) (bound : Q) (p : numbers * numbers) : bool :=
  match recall_blocks (width M) (blocks M) fs (start M (rationals (fst p))) with
  | Some st => let l := map (fun o => plus (row_ball (readout M) (N.of_nat o) (listed st)) (point (row_sum (bias M) (N.of_nat o) (fun _ => 1%Q))))
                            (seq 0 (length (snd p))) in
      forallb (fun q => Qle_bool (Qabs' (fst (fst q) - snd q) + snd (fst q)) bound) (combine l (rationals (snd p)))
  | None => false
  end.
Definition typed_numbers (l : numbers) : list typed := map (fun p => literal (fst p) (snd p)) l.
Fixpoint outputs_match (M : model) (x : vector) (bound : R) (o : N) (l : list typed) (rest : Prop) : Prop :=
  match l with [] => rest | y :: l => matches (output M x o) y bound /\ outputs_match M x bound (N.succ o) l rest end.
Fixpoint remembered (M : model) (bound : R) (l : list (numbers * numbers)) : Prop := match l with [] => True
  | (x, y) :: l => outputs_match M (inputs (map result (typed_numbers x))) bound 0 (typed_numbers y) (remembered M bound l) end.

(* Why that is what the model computes. *)
Lemma around_point c : around (Q2R c) (point c).
Proof. unfold around, point. simpl. unfold Rminus. rewrite Rplus_opp_r, Rabs_R0, RMicromega.Q2R_0. lra. Qed.
Lemma around_zero : around 0 (point 0).
Proof. rewrite <- RMicromega.Q2R_0. apply around_point. Qed.
Lemma around_plus v w a b : around v a -> around w b -> around (v + w) (plus a b).
Proof.
  unfold around, plus. simpl. rewrite !real_red, !Q2R_plus. intros H K.
  replace (v + w - (Q2R (fst a) + Q2R (fst b))) with ((v - Q2R (fst a)) + (w - Q2R (fst b))) by ring.
  eapply Rle_trans; [apply Rabs_triang|lra].
Qed.
Lemma around_times c v a : around v a -> around (Q2R c * v) (times c a).
Proof.
  unfold around, times. simpl. rewrite !real_red, !Q2R_mult, Qabs'_real. intros H.
  replace (Q2R c * v - Q2R c * Q2R (fst a)) with (Q2R c * (v - Q2R (fst a))) by ring.
  rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|exact H].
Qed.
Lemma around_positive v a : around v a -> around (Rmax 0 v) (positive_part a).
Proof.
  unfold around, positive_part. intros H. apply Rabs_le_between in H. apply Rabs_le. destruct (Qle_bool 0 (fst a)) eqn:E.
  - apply Qle_bool_iff, Qle_Rle in E. rewrite RMicromega.Q2R_0 in E. unfold Rmax. destruct (Rle_dec 0 v); lra.
  - assert (Q2R (fst a) <= 0).
    { destruct (Rle_or_lt (Q2R (fst a)) 0) as [L|L]; [exact L|]. rewrite <- RMicromega.Q2R_0 in L. apply Rlt_Qlt in L.
      apply Qlt_le_weak, Qle_bool_iff in L. congruence. }
    simpl. rewrite RMicromega.Q2R_0. unfold Rmax. destruct (Rle_dec 0 v); lra.
Qed.
Lemma around_row m r v f : (forall e, In e m -> around (v (at_column e)) (f (at_column e))) -> around (row m r v) (row_ball m r f).
Proof.
  unfold row. induction m as [|e m IH]; intros H; [exact around_zero|]. simpl.
  specialize (IH (fun e' I => H e' (or_intror I))). destruct (N.eqb (at_row e) r).
  - apply around_plus; [|exact IH]. rewrite <- real_rational. apply around_times, H. now left.
  - now rewrite Rplus_0_l.
Qed.
Lemma around_bias m r : around (row m r ones) (point (row_sum m r (fun _ => 1%Q))).
Proof. rewrite (real_row_sum m r (fun _ => 1%Q)); [apply around_point|]. intros. now rewrite RMicromega.Q2R_1. Qed.

Lemma over_unit z d : Q2R (z # d) = IZR z / IZR (Zpos d).
Proof. reflexivity. Qed.
Lemma exact_real d q : exact d q = true -> Q2R q = IZR (scaled d q) / IZR (Zpos d).
Proof. intros H. apply Qeq_bool_iff, Qeq_eqR in H. rewrite H. apply over_unit. Qed.
Lemma unit_positive d : 0 < IZR (Zpos d).
Proof. now apply IZR_lt. Qed.

Lemma dot_near (rows : list N) (q k : N -> R) (C S K : N -> Z) (e d : positive) :
  (forall r, In r rows -> Rabs (q r - IZR (C r) / IZR (Zpos e)) <= IZR (S r) / IZR (Zpos e)) ->
  (forall r, In r rows -> k r = IZR (K r) / IZR (Zpos d)) ->
  Rabs (sum (map (fun r => q r * k r) rows) * IZR (Zpos (d * e)) - IZR (dot (map C rows) (map K rows)))
  <= IZR (dot (map S rows) (map Z.abs (map K rows))).
Proof.
  pose proof (unit_positive d) as Pd. pose proof (unit_positive e) as Pe. rewrite Pos2Z.inj_mul, mult_IZR.
  induction rows as [|r rows IH]; intros Hq Hk; [simpl; rewrite Rmult_0_l, Rminus_0_r, Rabs_R0; lra|].
  cbn [map sum dot]. rewrite !plus_IZR, !mult_IZR, abs_IZR.
  specialize (IH (fun r' I => Hq r' (or_intror I)) (fun r' I => Hk r' (or_intror I))).
  specialize (Hq r (or_introl eq_refl)). rewrite (Hk r (or_introl eq_refl)).
  set (T := sum (map (fun r => q r * k r) rows)) in *. set (A := dot (map C rows) (map K rows)) in *. set (B := dot (map S rows) _) in *.
  assert (F : Rabs (q r * IZR (Zpos e) - IZR (C r)) <= IZR (S r)).
  { replace (q r * IZR (Zpos e) - IZR (C r)) with ((q r - IZR (C r) / IZR (Zpos e)) * IZR (Zpos e)) by (field; lra).
    rewrite Rabs_mult, (Rabs_pos_eq (IZR (Zpos e))) by lra. apply (Rmult_le_compat_r (IZR (Zpos e))) in Hq; [|lra].
    replace (IZR (S r) / IZR (Zpos e) * IZR (Zpos e)) with (IZR (S r)) in Hq by (field; lra). exact Hq. }
  replace ((q r * (IZR (K r) / IZR (Zpos d)) + T) * (IZR (Zpos d) * IZR (Zpos e)) - (IZR (C r) * IZR (K r) + IZR A))
    with ((q r * IZR (Zpos e) - IZR (C r)) * IZR (K r) + (T * (IZR (Zpos d) * IZR (Zpos e)) - IZR A)) by (field; lra).
  eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat; [|exact IH]. rewrite Rabs_mult.
  apply Rmult_le_compat_r; [apply Rabs_pos|exact F].
Qed.

(* All but one token are light. *)
Lemma light (l : list N) (s v : N -> R) j b : In j l -> 0 <= b -> (forall t, In t l -> t = j \/ exp (s t - s j) <= b) ->
  Rabs (sum (map (fun t => exp (s t) * v t) l) / sum (map (fun t => exp (s t)) l) - v j) <= b * sum (map (fun t => Rabs (v t - v j)) l).
Proof.
  intros J B H. set (Z := sum (map (fun t => exp (s t)) l)).
  assert (P : exp (s j) <= Z).
  { unfold Z. clear H. induction l as [|a l IH]; [destruct J|]. simpl. pose proof (exp_pos (s a)).
    assert (0 <= sum (map (fun t => exp (s t)) l)).
    { clear. induction l as [|a l IH]; simpl; [lra|]. pose proof (exp_pos (s a)). lra. }
    destruct J as [<-|J]; [lra|]. specialize (IH J). lra. }
  pose proof (exp_pos (s j)) as E.
  replace (sum (map (fun t => exp (s t) * v t) l) / Z - v j) with (sum (map (fun t => exp (s t) * (v t - v j)) l) / Z).
  2: { rewrite (sum_ext (fun t => exp (s t) * (v t - v j)) (fun t => exp (s t) * v t + - v j * exp (s t))) by (intros; ring).
       rewrite sum_plus, sum_scale. fold Z. field. lra. }
  unfold Rdiv. rewrite Rabs_mult, Rabs_inv, (Rabs_pos_eq Z) by lra. apply (Rmult_le_reg_r Z); [lra|].
  rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
  apply Rle_trans with (exp (s j) * (b * sum (map (fun t => Rabs (v t - v j)) l))).
  - rewrite <- Rmult_assoc, <- sum_scale. clear P Z J. induction l as [|a l IH]; [simpl; rewrite Rabs_R0; lra|]. simpl.
    eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat; [|apply IH; intros; apply H; now right].
    rewrite Rabs_mult, (Rabs_pos_eq (exp (s a))) by (left; apply exp_pos).
    destruct (H a (or_introl eq_refl)) as [->|L]; [unfold Rminus; rewrite Rplus_opp_r, Rabs_R0; nra|].
    apply Rmult_le_compat_r; [apply Rabs_pos|]. replace (s a) with (s j + (s a - s j)) by ring. rewrite exp_plus.
    apply Rmult_le_compat_l; lra.
  - assert (0 <= sum (map (fun t => Rabs (v t - v j)) l)).
    { clear. induction l as [|a l IH]; simpl; [lra|]. pose proof (Rabs_pos (v a - v j)). lra. }
    rewrite (Rmult_comm _ Z). apply Rmult_le_compat_r; [nra|lra].
Qed.

(* 2^k <= exp g if k <= 23/16 g. *)
Lemma two_below : 2 <= exp (16 / 23).
Proof.
  replace (16 / 23) with (INR 128 * (1 / 184)) by (rewrite INR_IZR_INZ; change (Z.of_nat 128) with 128%Z; lra).
  assert (E : forall n y, exp (INR n * y) = exp y ^ n).
  { induction n as [|n IH]; intros y; [rewrite Rmult_0_l; apply exp_0|].
    rewrite S_INR, Rmult_plus_distr_r, exp_plus, IH, Rmult_1_l. simpl. ring. }
  rewrite E. apply Rle_trans with ((185 / 184) ^ 128).
  - unfold Rdiv. rewrite Rpow_mult_distr, pow_inv. assert (0 < 184 ^ 128) by (apply pow_lt; lra).
    apply (Rmult_le_reg_r (184 ^ 128)); [assumption|]. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
    rewrite !pow_IZR, <- mult_IZR. apply IZR_le. vm_compute. discriminate.
  - apply pow_incr. pose proof (exp_ineq1 (1 / 184) ltac:(lra)). lra.
Qed.
Lemma halves g k : 0 <= g -> INR k <= 23 / 16 * g -> exp (- g) <= / 2 ^ k.
Proof.
  intros G K. rewrite exp_Ropp. apply Rinv_le_contravar; [apply pow_lt; lra|].
  rewrite <- (exp_ln (2 ^ k)) by (apply pow_lt; lra). apply exp_le. rewrite ln_pow by lra.
  assert (L : ln 2 <= 16 / 23) by (rewrite <- (ln_exp (16 / 23)); apply ln_le; [lra|exact two_below]).
  pose proof (pos_INR k). apply Rle_trans with (INR k * (16 / 23)); [now apply Rmult_le_compat_l|lra].
Qed.
Lemma lead_least b cap l p : In p l -> token_of p = token_of b \/ (lead b cap l <= score_of b - off_by b - (score_of p + off_by p))%Z.
Proof.
  unfold lead. induction l as [|a l IH]; [intros []|]. intros [->|I]; simpl.
  - destruct (N.eqb_spec (token_of p) (token_of b)); [now left|right; lia].
  - destruct (IH I) as [E|E]; [now left|right]. destruct (N.eqb_spec (token_of a) (token_of b)); lia.
Qed.
Lemma leader_in l : l <> [] -> In (leader l) l.
Proof.
  intros H. unfold leader. assert (G : forall d m, fold_right (fun p b => if Z.leb (score_of b) (score_of p) then p else b) d m = d
    \/ In (fold_right (fun p b => if Z.leb (score_of b) (score_of p) then p else b) d m) m).
  { intros d m. induction m as [|a m IH]; [now left|]. simpl. destruct (Z.leb _ (score_of a)); [right; now left|].
    destruct IH as [E|E]; [now left|right; now right]. }
  destruct l as [|a l]; [congruence|]. destruct (G (hd (Scored 0 0 0 []) (a :: l)) (a :: l)) as [E|E]; [rewrite E; now left|exact E].
Qed.
Lemma row_sum_ext m r v v' : (forall k, v k = v' k) -> row_sum m r v = row_sum m r v'.
Proof. intros H. unfold row_sum. induction m as [|e m IH]; [reflexivity|]. simpl. rewrite IH. now rewrite H. Qed.
Lemma of_token_ok m t k : stored (of_token m t) t k = stored m t k.
Proof.
  unfold stored, row_sum, of_token. induction m as [|e m IH]; [reflexivity|]. simpl.
  destruct (N.eqb (at_row e) t) eqn:E; simpl; [rewrite E|]; now rewrite IH.
Qed.
Lemma at_token_ok M m rows t : at_token M m rows t = map (fun r => row_sum m r (stored (memory M) t)) rows.
Proof. unfold at_token. apply map_ext. intros r. apply row_sum_ext. intros k. apply of_token_ok. Qed.

Section Correct.
Variable M : model.
Definition key_at (h : head) (t r : N) : Q := row_sum (key h) r (stored (memory M) t).
Definition value_at (h : head) (t k : N) : Q := row_sum (value h) k (stored (memory M) t).
Lemma prepare_ok h f : prepare M h = Some f -> projection h = None /\ slots_of f = nodup N.eq_dec (map at_row (value h)) /\
  candidates f = map (fun t => Candidate t (map (fun r => scaled (unit_of f) (key_at h t r)) (first (size h)))
                                           (map (fun k => scaled (unit_of f) (value_at h t k)) (slots_of f))) (first (tokens M)) /\
  forall t, In t (first (tokens M)) -> (forall r, In r (first (size h)) -> exact (unit_of f) (key_at h t r) = true) /\
    (forall k, In k (slots_of f) -> exact (unit_of f) (value_at h t k) = true).
Proof.
  unfold prepare. set (slots := nodup N.eq_dec (map at_row (value h))). set (d := common _). intros E.
  destruct (forallb _ _) eqn:F; [|discriminate]. destruct (projection h); [discriminate|]. injection E as <-. simpl.
  split; [reflexivity|]. split; [reflexivity|]. split.
  - rewrite map_map. apply map_ext. intros t. simpl. now rewrite !at_token_ok, !map_map.
  - intros t I. rewrite forallb_forall in F.
    specialize (F _ (in_map (fun t => (t, (at_token M (key h) (first (size h)) t, at_token M (value h) slots t))) _ _ I)).
    simpl in F. rewrite !at_token_ok in F. apply andb_true_iff in F as [A B]. rewrite forallb_forall in A, B.
    split; intros r J; [apply A|apply B]; [exact (in_map (fun r => row_sum (key h) r (stored (memory M) t)) _ _ J)|
      exact (in_map (fun r => row_sum (value h) r (stored (memory M) t)) _ _ J)].
Qed.

Definition tracks (v : vector) (st : list ball) : Prop := forall k, (k < width M)%N -> around (v k) (listed st k).
Definition fits_head (h : head) : bool := narrow (width M) (query h) && steady (open_slots M) (key h) && steady (open_slots M) (value h).
Lemma tracks_row m r v st : narrow (width M) m = true -> tracks v st -> around (row m r v) (row_ball m r (listed st)).
Proof.
  intros Hn Ht. apply around_row. intros e I. apply Ht. unfold narrow in Hn. rewrite forallb_forall in Hn. now apply N.ltb_lt, Hn.
Qed.
Lemma abs_sum {A} (g : A -> Z) (l : list A) d : sum (map (fun a => IZR (Z.abs (g a)) / d) l) = IZR (fold_right (fun a s => (Z.abs (g a) + s)%Z) 0%Z l) / d.
Proof. induction l as [|a l IH]; simpl; [lra|]. rewrite IH, plus_IZR. lra. Qed.

Lemma heard_ok h f s st l : fits_head h = true -> prepare M h = Some f -> constant M s -> tracks (s 0%N) st ->
  heard_balls f (map (fun r => row_ball (query h) r (listed st)) (first (size h))) = Some l ->
  forall slot, around (heard Softmax (first (tokens M)) s 0 slot h) (found l slot).
Proof.
  intros F P C T E slot. unfold fits_head in F. rewrite !andb_true_iff in F. destruct F as [[F1 F2] F3].
  destruct (prepare_ok h f P) as [Po [Sl [Ca Ex]]]. unfold heard_balls in E.
  set (rows := first (size h)) in *. set (qs := map (fun r => row_ball (query h) r (listed st)) rows) in *.
  set (e := common _) in E. rewrite Ca, !map_map in E. cbn [which keys_of held_of] in E.
  set (cands := map _ (first (tokens M))) in E. set (best := leader cands) in E.
  set (whole := (unit_of f * e)%positive) in E. set (g := lead best (300 * Zpos whole) cands) in E.
  set (k := Z.to_nat (23 * g / (16 * Zpos whole))) in E.
  match type of E with (if ?x then _ else _) = _ => destruct x eqn:Q; [|discriminate] end. rewrite !andb_true_iff in Q.
  destruct Q as [[Q G] Ne']. assert (Ne : cands <> []) by (intros Z; rewrite Z in Ne'; discriminate). clear Ne'.
  apply Z.leb_le in G. injection E as <-. unfold found. destruct (find _ _) as [[k' b]|] eqn:Fi.
  2: { rewrite heard_none; [exact around_zero|exact Po|]. intros I. apply (nodup_In N.eq_dec) in I. rewrite <- Sl in I.
       apply (In_nth _ _ 0%N) in I as [i [Li Ni]]. assert (X := find_none _ _ Fi).
       specialize (X _ (in_map _ _ _ (proj2 (in_seq (length (slots_of f)) 0 i) ltac:(lia)))). cbn [fst] in X. rewrite Ni, N.eqb_refl in X. discriminate. }
  apply find_some in Fi as [I Es]. cbn [fst] in Es. apply N.eqb_eq in Es. subst k'. apply in_map_iff in I as [i [Ei Ii]].
  apply in_seq in Ii. injection Ei as Es <-. cbn [snd].
  assert (Is : In slot (slots_of f)) by (rewrite <- Es; apply nth_In; lia).
  assert (V : forall t, In t (first (tokens M)) -> row (value h) slot (s t) = IZR (scaled (unit_of f) (value_at h t slot)) / IZR (Zpos (unit_of f))).
  { intros t It. rewrite (constant_row M s (value h) slot t C F3). apply exact_real. now apply (Ex t It). }
  assert (B := leader_in cands Ne). fold best in B. unfold cands in B. apply in_map_iff in B as [j [Bj Ij]].
  assert (N : forall z t, z = (nth i (map (fun k => scaled (unit_of f) (value_at h t k)) (slots_of f)) 0)%Z -> z = scaled (unit_of f) (value_at h t slot)).
  { intros z t ->. rewrite (nth_indep _ 0%Z (scaled (unit_of f) (value_at h t 0))) by (rewrite map_length; lia).
    now rewrite (map_nth (fun k => scaled (unit_of f) (value_at h t k))), Es. }
  assert (S : forall t, In t (first (tokens M)) ->
    Rabs (score h s 0 t * IZR (Zpos whole) - IZR (dot (map (fun b => scaled e (fst b)) qs) (map (fun r => scaled (unit_of f) (key_at h t r)) rows)))
    <= IZR (dot (map (fun b => scaled e (snd b)) qs) (map Z.abs (map (fun r => scaled (unit_of f) (key_at h t r)) rows)))).
  { intros t It. unfold qs. rewrite !map_map. rewrite <- (map_map (fun r => scaled (unit_of f) (key_at h t r)) Z.abs). unfold score. fold rows. apply dot_near.
    - intros r Ir. assert (A := tracks_row (query h) r (s 0%N) st F1 T). unfold around in A.
      assert (X : exact e (fst (row_ball (query h) r (listed st))) = true /\ exact e (snd (row_ball (query h) r (listed st))) = true).
      { rewrite forallb_forall in Q. apply andb_true_iff. apply Q. unfold qs. now apply (in_map (fun r => row_ball (query h) r (listed st))). }
      now rewrite <- (exact_real e _ (proj1 X)), <- (exact_real e _ (proj2 X)).
    - intros r Ir. rewrite (constant_row M s (key h) r t C F2). apply exact_real. now apply (Ex t It). }
  assert (W := unit_positive whole). unfold heard. rewrite Po, mixed_softmax.
  assert (H : forall t, In t (first (tokens M)) -> t = j \/ exp (score h s 0 t - score h s 0 j) <= / 2 ^ k).
  { intros t It. destruct (lead_least best (300 * Zpos whole) cands _ (in_map _ _ _ It)) as [X|X]; [left; rewrite <- Bj in X; exact X|right].
    fold g in X. rewrite <- Bj in X. cbn [score_of off_by] in X. apply IZR_le in X. rewrite !minus_IZR, plus_IZR in X.
    pose proof (proj1 (Rabs_le_between _ _) (S t It)) as St. pose proof (proj1 (Rabs_le_between _ _) (S j Ij)) as Sj.
    apply Rle_trans with (exp (- (IZR g / IZR (Zpos whole)))).
    - apply exp_le. apply (Rmult_le_reg_r (IZR (Zpos whole))); [exact W|].
      replace (- (IZR g / IZR (Zpos whole)) * IZR (Zpos whole)) with (- IZR g) by (field; lra). lra.
    - apply halves; [apply Rmult_le_pos; [now apply IZR_le|left; now apply Rinv_0_lt_compat]|].
      unfold k. rewrite INR_IZR_INZ, Z2Nat.id by (apply Z.div_pos; lia).
      pose proof (Z.mul_div_le (23 * g) (16 * Zpos whole) ltac:(lia)) as D. apply IZR_le in D. rewrite !mult_IZR in D.
      apply (Rmult_le_reg_r (16 * IZR (Zpos whole))); [lra|].
      replace (23 / 16 * (IZR g / IZR (Zpos whole)) * (16 * IZR (Zpos whole))) with (23 * IZR g) by (field; lra). lra. }
  assert (L := light (first (tokens M)) (fun t => score h s 0 t) (fun t => row (value h) slot (s t)) j (/ 2 ^ k) Ij
    ltac:(left; apply Rinv_0_lt_compat, pow_lt; lra) H). cbv beta in L.
  unfold around. cbn [fst snd]. rewrite !real_red, !over_unit. rewrite <- Bj at 1. cbn [values_of]. rewrite (N _ j eq_refl), <- (V j Ij).
  eapply Rle_trans; [exact L|]. right.
  rewrite (sum_ext _ (fun t => IZR (Z.abs (scaled (unit_of f) (value_at h t slot) - scaled (unit_of f) (value_at h j slot))) / IZR (Zpos (unit_of f)))).
  2: { intros t It. rewrite (V t It), (V j Ij), abs_IZR, minus_IZR. unfold Rdiv. rewrite <- Rmult_minus_distr_r, Rabs_mult.
       f_equal. apply Rabs_pos_eq. left. apply Rinv_0_lt_compat, unit_positive. }
  rewrite abs_sum. rewrite Pos2Z.inj_mul, mult_IZR, Z2Pos.id by (apply Z.pow_pos_nonneg; lia). rewrite <- pow_IZR.
  replace (apart cands best i) with (fold_right (fun a s => (Z.abs (scaled (unit_of f) (value_at h a slot) - scaled (unit_of f) (value_at h j slot)) + s)%Z) 0%Z (first (tokens M))).
  { pose proof (unit_positive (unit_of f)). assert (2 ^ k <> 0) by (apply pow_nonzero; lra). field. split; lra. }
  unfold apart, cands. rewrite <- Bj. cbn [values_of]. rewrite (N _ j eq_refl). clear - N. induction (first (tokens M)) as [|a l IH]; [reflexivity|].
  cbn [map fold_right]. rewrite IH. cbn [values_of]. now rewrite (N _ a eq_refl).
Qed.
Lemma all_some_cons {A} (a : option A) l r : all_some (a :: l) = Some r -> exists b m, a = Some b /\ all_some l = Some m /\ r = b :: m.
Proof. simpl. destruct a as [b|]; [|discriminate]. destruct (all_some l) as [m|]; [|discriminate]. intros E. injection E as <-. now exists b, m. Qed.
Lemma heads_ok s st hs : forall fs ls, forallb fits_head hs = true -> all_some (map (prepare M) hs) = Some fs -> constant M s -> tracks (s 0%N) st ->
  recall_heads hs fs st = Some ls -> (forall h, In h hs -> projection h = None) /\
  forall slot, around (sum (map (heard Softmax (first (tokens M)) s 0 slot) hs)) (fold_right (fun l a => plus (found l slot) a) (point 0) ls).
Proof.
  induction hs as [|h hs IH]; intros fs ls F P C T E; [injection P as <-; injection E as <-; split; [intros h []|intros; exact around_zero]|].
  cbn [forallb] in F. apply andb_true_iff in F as [Fh F]. apply all_some_cons in P as [f [fs' [Ph [P ->]]]]. cbn [recall_heads] in E.
  destruct (heard_balls f _) as [l|] eqn:El; [|discriminate]. destruct (recall_heads hs fs' st) as [ls'|] eqn:Els; [|discriminate]. injection E as <-.
  destruct (IH fs' ls' F P C T Els) as [N H]. split.
  - intros h' [<-|I]; [apply (prepare_ok h f Ph)|now apply N].
  - intros slot. cbn [map sum fold_right]. apply around_plus; [|apply H]. now apply (heard_ok h f s st).
Qed.
Lemma listed_map g n k : (k < n)%N -> listed (map g (first n)) k = g k.
Proof. intros H. unfold listed. now apply nth_first. Qed.
Lemma layer_ok f z st : narrow (width M) (hidden f) = true -> tracks z st -> tracks (fun k => z k + fed f z k) (recall_layer (width M) f st).
Proof.
  intros F T k L. unfold recall_layer. rewrite listed_map by exact L. apply around_plus; [now apply T|]. unfold fed. apply around_plus; [|apply around_bias].
  apply around_row. intros e I. set (u := at_column e).
  assert (U : (u < fold_right N.max 0 (map (fun e => N.succ (at_column e)) (outgoing f)))%N).
  { apply N.lt_le_trans with (N.succ u); [lia|]. apply max_le, in_map_iff. now exists e. }
  unfold units. rewrite listed_map by exact U. apply around_positive, around_plus; [now apply tracks_row|apply around_bias].
Qed.
Definition fits_block (b : block) : bool :=
  forallb fits_head (heads b) && match feed_forward b with None => true | Some f => narrow (width M) (hidden f) end.
Lemma block_ok b fs s st st' : fits_block b = true -> In b (blocks M) -> all_some (map (prepare M) (heads b)) = Some fs -> constant M s -> tracks (s 0%N) st ->
  recall_block (width M) b fs st = Some st' -> constant M (run (first (tokens M)) s b) /\ tracks (run (first (tokens M)) s b 0%N) st'.
Proof.
  intros F B P C T E. unfold fits_block in F. apply andb_true_iff in F as [Fh Ff]. unfold recall_block in E.
  destruct (attention b) eqn:K; [|discriminate]. destruct (recall_heads (heads b) fs st) as [ls|] eqn:R; [|discriminate].
  destruct (heads_ok s st (heads b) fs ls Fh P C T R) as [N H].
  assert (W : forall slot, ~ In slot (open_slots M) -> ~ In slot (changed b)).
  { intros slot A I. apply A. unfold open_slots. apply in_or_app. right. apply in_flat_map. now exists b. }
  assert (S : forall t slot, ~ In slot (changed b) -> attended (first (tokens M)) b s t slot = s t slot).
  { intros t slot A. unfold attended. rewrite steady_sum; [lra| |apply forallb_forall; intros h I; now rewrite (N h I)].
    intros I. apply A. unfold changed. apply in_or_app. now left. }
  set (here := map (fun k => plus (listed st k) (fold_right (fun l a => plus (found l k) a) (point 0) ls)) (first (width M))) in *.
  assert (Z : tracks (attended (first (tokens M)) b s 0%N) here).
  { intros k L. unfold here. rewrite listed_map by exact L. unfold attended. rewrite K. apply around_plus; [now apply T|apply H]. }
  unfold run. destruct (feed_forward b) as [f|] eqn:FF; injection E as <-; (split; [|first [exact Z | now apply layer_ok]]).
  - intros t slot A. rewrite S by auto. rewrite (C t slot A). unfold fed.
    rewrite !row_none; [lra| |]; intros I; apply (W slot A); unfold changed, layer_rows; rewrite FF; apply in_or_app; right; apply in_or_app; auto.
  - intros t slot A. rewrite S by auto. now apply C.
Qed.
Lemma blocks_ok bs : forall fs s st st', forallb fits_block bs = true -> (forall b, In b bs -> In b (blocks M)) ->
  all_some (map (fun b => all_some (map (prepare M) (heads b))) bs) = Some fs -> constant M s -> tracks (s 0%N) st ->
  recall_blocks (width M) bs fs st = Some st' -> tracks (fold_left (run (first (tokens M))) bs s 0%N) st'.
Proof.
  induction bs as [|b bs IH]; intros fs s st st' F I P C T E; [injection P as <-; injection E as <-; exact T|].
  cbn [forallb] in F. apply andb_true_iff in F as [Fb F]. cbn [map] in P. apply all_some_cons in P as [f [fs' [Pb [P ->]]]].
  cbn [recall_blocks] in E. destruct (recall_block (width M) b f st) as [st1|] eqn:R; [|discriminate].
  destruct (block_ok b f s st st1 Fb (I b (or_introl eq_refl)) Pb C T R) as [C' T']. cbn [fold_left].
  apply (IH fs' _ st1); auto. intros b' J. apply I. now right.
Qed.
Lemma point_nth x j : around (nth (N.to_nat j) (map Q2R x) 0) (point (nth (N.to_nat j) x 0%Q)).
Proof. rewrite <- RMicromega.Q2R_0, map_nth. apply around_point. Qed.
Theorem recalled fs bound x y : fits M (N.of_nat (length x)) = true -> prepared M = Some fs -> recalls M fs bound (x, y) = true ->
  forall o, (o < length y)%nat -> Rabs (output M (inputs (map Q2R (rationals x))) (N.of_nat o) - Q2R (nth o (rationals y) 0%Q)) <= Q2R bound.
Proof.
  intros F P E o Ho. unfold fits in F. rewrite !andb_true_iff in F. destruct F as [[[[Fb Fe] Fr] Ft] Fw]. unfold recalls in E. cbn [fst snd] in E.
  destruct (recall_blocks _ _ _ _) as [st|] eqn:R; [|discriminate]. set (X := inputs (map Q2R (rationals x))).
  assert (D : tracks (final M X 0%N) st).
  { unfold final. apply (blocks_ok _ fs (embed M X) (start M (rationals x)) st Fb); auto.
    - intros t k A. unfold embed. rewrite row_none, real_stored; [lra|]. intros I. apply A. unfold open_slots. apply in_or_app. left.
      apply in_map_iff in I as [e [Ie I]]. assert (L := I). rewrite forallb_forall in Fe. specialize (Fe e I). apply andb_true_iff in Fe as [Fe _].
      apply N.ltb_lt in Fe. apply N.ltb_lt in Fw. rewrite Ie in Fe. assert (t = 0)%N by nia. subst t. rewrite N.mul_0_l, N.add_0_l in Ie.
      rewrite <- Ie. now apply in_map.
    - intros k L. unfold start. rewrite listed_map by exact L. unfold embed. rewrite N.mul_0_l, N.add_0_l, real_stored.
      apply around_plus; [|apply around_point]. apply around_row. intros e _. apply point_nth. }
  unfold output. set (g := fun o => plus (row_ball (readout M) (N.of_nat o) (listed st)) (point (row_sum (bias M) (N.of_nat o) (fun _ => 1%Q)))) in *.
  assert (A : around (row (readout M) (N.of_nat o) (fun c => final M X (c / width M)%N (c mod width M)%N) + row (bias M) (N.of_nat o) ones) (g o)).
  { apply around_plus; [|apply around_bias]. apply around_row. intros e I. unfold narrow in Fr. rewrite forallb_forall in Fr.
    specialize (Fr e I). apply N.ltb_lt in Fr. rewrite N.div_small, N.mod_small by exact Fr. now apply D. }
  rewrite forallb_forall in E. specialize (E (g o, nth o (rationals y) 0%Q)).
  assert (I : In (g o, nth o (rationals y) 0%Q) (combine (map g (seq 0 (length y))) (rationals y))).
  { assert (Le : length (map g (seq 0 (length y))) = length (rationals y)) by (unfold rationals; now rewrite !map_length, seq_length).
    replace (g o) with (nth o (map g (seq 0 (length y))) (g O)) by (rewrite map_nth, seq_nth by exact Ho; reflexivity).
    rewrite <- combine_nth by exact Le. apply nth_In. rewrite combine_length, map_length, seq_length. unfold rationals. rewrite map_length. lia. }
  specialize (E I). cbn [fst snd] in E. apply Qle_bool_iff, Qle_Rle in E. rewrite Q2R_plus, Qabs'_real, Q2R_minus in E. unfold around in A.
  set (v := _ + row (bias M) _ ones) in *.
  replace (v - Q2R (nth o (rationals y) 0%Q)) with ((v - Q2R (fst (g o))) + (Q2R (fst (g o)) - Q2R (nth o (rationals y) 0%Q))) by ring.
  eapply Rle_trans; [apply Rabs_triang|lra].
Qed.
Lemma literal_real p : result (literal (fst p) (snd p)) = Q2R (fst p # snd p).
Proof. unfold literal, Q2R. simpl. destruct (snd p); try reflexivity. now rewrite Rinv_1, Rmult_1_r. Qed.
Lemma typed_real l : map result (typed_numbers l) = map Q2R (rationals l).
Proof. unfold typed_numbers, rationals. rewrite !map_map. apply map_ext. apply literal_real. Qed.
Theorem memory_ok fs bound n l : fits M n = true -> prepared M = Some fs ->
  forallb (fun p => N.eqb (N.of_nat (length (fst p))) n && recalls M fs bound p) l = true -> remembered M (Q2R bound) l.
Proof.
  intros F P. induction l as [|[x y] l IH]; intros H; [exact I|]. cbn [forallb fst snd] in H. rewrite !andb_true_iff in H. destruct H as [[Hn H] Hl].
  apply N.eqb_eq in Hn. cbn [remembered]. specialize (IH Hl).
  assert (G := recalled fs bound x y ltac:(now rewrite Hn) P H).
  assert (K : forall y' k, (forall o, (o < length y')%nat -> Rabs (output M (inputs (map Q2R (rationals x))) (k + N.of_nat o) - Q2R (nth o (rationals y') 0%Q)) <= Q2R bound) ->
    outputs_match M (inputs (map result (typed_numbers x))) (Q2R bound) k (typed_numbers y') (remembered M (Q2R bound) l)).
  { rewrite typed_real. induction y' as [|a y' IHy]; intros k B; [exact IH|]. cbn [typed_numbers map outputs_match]. split.
    - split; [exact I|]. rewrite literal_real. specialize (B O ltac:(simpl; lia)). now rewrite N.add_0_r in B.
    - apply IHy. intros o L. specialize (B (S o) ltac:(simpl; lia)). replace (N.succ k + N.of_nat o)%N with (k + N.of_nat (S o))%N by lia. exact B. }
  apply K. intros o L. rewrite N.add_0_l. now apply G.
Qed.
End Correct.
