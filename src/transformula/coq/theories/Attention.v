(* Softmax tables over rational tokens: what one head reads, and that tokens behind a gate are hardly heard. *)
Require Import Reals Lra Psatz List QArith Qreals Lia Bool Coquelicot.Coquelicot Interval.Tactic.
Require Import Transformula.Transformer.
Import ListNotations.
Open Scope R_scope.

Definition token := (Q * Q * Q)%type.  (* slope, offset, value *)
Definition slope (t : token) : Q := fst (fst t).
Definition offset (t : token) : Q := snd (fst t).
Definition held (t : token) : Q := snd t.
Definition score_at (t : token) (u : R) : R := Q2R (slope t) * u + Q2R (offset t).
Definition num (l : list token) (u : R) : R := sum (map (fun t => exp (score_at t u) * Q2R (held t)) l).
Definition den (l : list token) (u : R) : R := sum (map (fun t => exp (score_at t u)) l).
Definition attend (l : list token) (u : R) : R := num l u / den l u.

Lemma sum_app l m : sum (l ++ m) = sum l + sum m.
Proof. induction l; simpl; lra. Qed.
Lemma sum_ext {A} (f g : A -> R) l : (forall a, In a l -> f a = g a) -> sum (map f l) = sum (map g l).
Proof. induction l; simpl; intros H; [reflexivity|]. rewrite H by auto. rewrite IHl; auto. Qed.
Lemma sum_scale {A} c (f : A -> R) l : sum (map (fun a => c * f a) l) = c * sum (map f l).
Proof. induction l; simpl; lra. Qed.
Lemma sum_plus {A} (f g : A -> R) l : sum (map (fun a => f a + g a) l) = sum (map f l) + sum (map g l).
Proof. induction l; simpl; lra. Qed.
Lemma sum_zero {A} (f : A -> R) l : (forall a, In a l -> f a = 0) -> sum (map f l) = 0.
Proof. intros H. rewrite (sum_ext _ (fun _ => 0)) by exact H. clear H. induction l; simpl; lra. Qed.

Lemma den_nonneg l u : 0 <= den l u.
Proof. unfold den. induction l; simpl; [lra|]. pose proof (exp_pos (score_at a u)). lra. Qed.
Lemma split_num (f : token -> bool) l u : num l u = num (filter f l) u + num (filter (fun t => negb (f t)) l) u.
Proof. unfold num. induction l; simpl; [lra|]. destruct (f a); simpl; lra. Qed.
Lemma split_den (f : token -> bool) l u : den l u = den (filter f l) u + den (filter (fun t => negb (f t)) l) u.
Proof. unfold den. induction l; simpl; [lra|]. destruct (f a); simpl; lra. Qed.

Definition Qabs' (q : Q) : Q := if Qle_bool 0 q then q else Qopp q.
Lemma Qabs'_real q : Q2R (Qabs' q) = Rabs (Q2R q).
Proof.
  unfold Qabs'. destruct (Qle_bool 0 q) eqn:E.
  - apply Qle_bool_iff, Qle_Rle in E. rewrite RMicromega.Q2R_0 in E. now rewrite Rabs_pos_eq.
  - rewrite Q2R_opp. rewrite Rabs_left1; [reflexivity|].
    destruct (Rle_or_lt (Q2R q) 0) as [H|H]; [exact H|]. rewrite <- RMicromega.Q2R_0 in H. apply Rlt_Qlt in H.
    apply Qlt_le_weak, Qle_bool_iff in H. congruence.
Qed.

(* For |u| <= U: a token that is far has scores below -600; one that is near has a score above -100 everywhere. *)
Definition far (U : Q) (t : token) : bool := Qle_bool (Qabs' (slope t) * U + offset t) (-600 # 1).
Definition near (U : Q) (t : token) : bool := Qle_bool (-100 # 1) (offset t - Qabs' (slope t) * U).
Definition small (V : Q) (t : token) : bool := Qle_bool (Qabs' (held t)) V.
Definition own (U : Q) (l : list token) : list token := filter (fun t => negb (far U t)) l.
Definition guarded (U V : Q) (l : list token) : bool :=
  forallb (small V) l && existsb (near U) (own U l) && Qle_bool V (1000000000000000 # 1) && (length l <=? 1000)%nat.

Lemma score_reach (U : Q) t u : Rabs u <= Q2R U -> Rabs (Q2R (slope t) * u) <= Q2R (Qabs' (slope t) * U).
Proof.
  intros H. rewrite Q2R_mult, Qabs'_real, Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|exact H].
Qed.
Lemma far_below U t u : far U t = true -> Rabs u <= Q2R U -> score_at t u <= -600.
Proof.
  intros H Hu. apply Qle_bool_iff, Qle_Rle in H. rewrite Q2R_plus in H. pose proof (score_reach U t u Hu) as S.
  apply Rabs_le_between in S. replace (Q2R (-600 # 1)) with (-600) in H by (unfold Q2R; simpl; lra).
  unfold score_at. lra.
Qed.
Lemma near_above U t u : near U t = true -> Rabs u <= Q2R U -> -100 <= score_at t u.
Proof.
  intros H Hu. apply Qle_bool_iff, Qle_Rle in H. rewrite Q2R_minus in H. pose proof (score_reach U t u Hu) as S.
  apply Rabs_le_between in S. replace (Q2R (-100 # 1)) with (-100) in H by (unfold Q2R; simpl; lra).
  unfold score_at. lra.
Qed.
Lemma exp_le a b : a <= b -> exp a <= exp b.
Proof. intros [H|H]; [left; now apply exp_increasing | rewrite H; lra]. Qed.
Lemma num_small V l u : forallb (small V) l = true -> Rabs (num l u) <= Q2R V * den l u.
Proof.
  unfold num, den. induction l as [|t l IH]; simpl; intros H; [rewrite Rabs_R0; lra|].
  apply andb_true_iff in H as [H1 H2]. specialize (IH H2). apply Qle_bool_iff, Qle_Rle in H1. rewrite Qabs'_real in H1.
  pose proof (exp_pos (score_at t u)). eapply Rle_trans; [apply Rabs_triang|].
  rewrite Rabs_mult, (Rabs_pos_eq (exp _)) by lra. nra.
Qed.
Lemma den_far U l u : Rabs u <= Q2R U -> (forall t, In t l -> far U t = true) -> den l u <= INR (length l) * exp (-600).
Proof.
  intros Hu. unfold den. induction l as [|t l IH]; [simpl; lra|]. intros H.
  change (length (t :: l)) with (S (length l)). rewrite S_INR. simpl.
  pose proof (exp_le _ _ (far_below U t u (H t (or_introl eq_refl)) Hu)). specialize (IH (fun t' I => H t' (or_intror I))). lra.
Qed.
Lemma den_near U l u : Rabs u <= Q2R U -> existsb (near U) l = true -> exp (-100) <= den l u.
Proof.
  intros Hu H. apply existsb_exists in H as [t [I Ht]]. pose proof (exp_le _ _ (near_above U t u Ht Hu)).
  unfold den. induction l as [|s l IH]; [destruct I|]. simpl. pose proof (exp_pos (score_at s u)).
  pose proof (den_nonneg l u) as D. unfold den in D. destruct I as [<-|I]; [lra|]. specialize (IH I). lra.
Qed.
Lemma filter_length_le {A} (f : A -> bool) l : (length (filter f l) <= length l)%nat.
Proof. induction l; simpl; [lia|]. destruct (f a); simpl; lia. Qed.
Lemma forallb_filter {A} (p f : A -> bool) l : forallb p l = true -> forallb p (filter f l) = true.
Proof. rewrite !forallb_forall. intros H t I. apply filter_In in I as [I _]. auto. Qed.

Lemma leak U V l u : guarded U V l = true -> Rabs u <= Q2R U -> Rabs (attend l u - attend (own U l) u) <= / 10 ^ 190.
Proof.
  intros G Hu. unfold guarded in G. rewrite !andb_true_iff in G. destruct G as [[[GV GN] GB] GL].
  unfold attend. rewrite (split_num (far U) l), (split_den (far U) l). fold (own U l).
  pose proof (num_small V (own U l) u (forallb_filter _ _ _ GV)) as A.
  pose proof (num_small V (filter (far U) l) u (forallb_filter _ _ _ GV)) as B.
  assert (C : den (filter (far U) l) u <= 1000 * exp (-600)).
  { eapply Rle_trans; [apply (den_far U); [exact Hu|]; intros t I; apply filter_In in I; tauto|].
    apply Rmult_le_compat_r; [left; apply exp_pos|]. apply Nat.leb_le in GL.
    replace 1000 with (INR 1000) by (rewrite INR_IZR_INZ; reflexivity). apply le_INR.
    pose proof (filter_length_le (far U) l). lia. }
  pose proof (den_near U _ u Hu GN) as D. apply Qle_bool_iff, Qle_Rle in GB.
  replace (Q2R (1000000000000000 # 1)) with (10 ^ 15) in GB by (unfold Q2R; simpl; lra).
  pose proof (den_nonneg (filter (far U) l) u) as P.
  set (n := num (own U l) u) in *. set (d := den (own U l) u) in *.
  set (n' := num (filter (far U) l) u) in *. set (d' := den (filter (far U) l) u) in *. set (W := Q2R V) in *.
  assert (E6 : 0 < exp (-600)) by apply exp_pos. assert (E1 : 0 < exp (-100)) by apply exp_pos.
  assert (0 <= W) by (pose proof (Rabs_pos n); nra).
  replace ((n' + n) / (d' + d) - n / d) with ((n' * d - n * d') / (d * (d + d'))) by (field; lra).
  unfold Rdiv. rewrite Rabs_mult, Rabs_inv, (Rabs_pos_eq (d * (d + d'))) by nra.
  apply (Rmult_le_reg_r (d * (d + d'))); [nra|]. rewrite Rmult_assoc, Rinv_l by nra. rewrite Rmult_1_r.
  assert (F : Rabs (n' * d - n * d') <= 2 * W * d' * d).
  { eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_Ropp, !Rabs_mult, (Rabs_pos_eq d), (Rabs_pos_eq d') by lra. nra. }
  eapply Rle_trans; [exact F|].
  assert (I : 2 * 10 ^ 15 * 1000 * exp (-500) <= / 10 ^ 190) by interval.
  assert (T : 0 < / 10 ^ 190) by (apply Rinv_0_lt_compat, pow_lt; lra).
  assert (J : 2 * W * d' <= / 10 ^ 190 * d).
  { eapply Rle_trans with (2 * 10 ^ 15 * (1000 * exp (-600))); [nra|].
    eapply Rle_trans with (/ 10 ^ 190 * exp (-100)); [|apply Rmult_le_compat_l; lra].
    replace (-600) with (-500 + -100) by ring. rewrite exp_plus. nra. }
  eapply Rle_trans with (/ 10 ^ 190 * d * d); [nra|]. rewrite Rmult_assoc. apply Rmult_le_compat_l; nra.
Qed.
Lemma leak_small : / 10 ^ 190 <= 1 / 10000000000000000000000000.
Proof. interval. Qed.

(* Scores measured from those of a line: weights that add up to about 1, and a bound without a quotient. *)
Definition shifted (s r : Q) (l : list token) : list token :=
  map (fun t => (Qred (slope t - s), Qred (offset t - r), held t)) l.
Definition excess (l : list token) (f u : R) : R := sum (map (fun t => exp (score_at t u) * (Q2R (held t) - f)) l).
Lemma real_shift (a s : Q) : Q2R a = Q2R s + Q2R (Qred (a - s)).
Proof. rewrite (Qeq_eqR _ _ (Qred_correct _)), Q2R_minus. ring. Qed.
Lemma shifted_weight s r t u : exp (score_at t u) =
  exp (Q2R s * u + Q2R r) * exp (Q2R (Qred (slope t - s)) * u + Q2R (Qred (offset t - r))).
Proof. rewrite <- exp_plus. unfold score_at. rewrite (real_shift (slope t) s), (real_shift (offset t) r). f_equal. ring. Qed.
Lemma shifted_den s r l u : den l u = exp (Q2R s * u + Q2R r) * den (shifted s r l) u.
Proof. unfold den, shifted. rewrite map_map, <- sum_scale. apply sum_ext. intros t _. apply shifted_weight. Qed.
Lemma shifted_num s r l f u : num l u - f * den l u = exp (Q2R s * u + Q2R r) * excess (shifted s r l) f u.
Proof.
  unfold num, den, excess, shifted. induction l as [|t l IH]; cbn [map sum]; [ring|]. rewrite (shifted_weight s r t u).
  rewrite (Rmult_plus_distr_l (exp (Q2R s * u + Q2R r))), <- IH.
  change (score_at (_, _, held t) u) with (Q2R (Qred (slope t - s)) * u + Q2R (Qred (offset t - r))).
  change (held (_, _, held t)) with (held t). ring.
Qed.
Lemma centred s r l f u e d : 0 < d -> d <= den (shifted s r l) u -> Rabs (excess (shifted s r l) f u) <= e * d ->
  Rabs (attend l u - f) <= e.
Proof.
  intros P D E. pose proof (exp_pos (Q2R s * u + Q2R r)) as C. unfold attend.
  pose proof (shifted_den s r l u) as M. pose proof (shifted_num s r l f u) as X. set (c := exp _) in *.
  set (m := den (shifted s r l) u) in *. assert (c * m <> 0) by nra.
  replace (num l u / den l u - f) with ((num l u - f * den l u) / den l u) by (field; congruence). rewrite X, M.
  replace (c * excess (shifted s r l) f u / (c * m)) with (excess (shifted s r l) f u / m) by (field; nra).
  unfold Rdiv. rewrite Rabs_mult, Rabs_inv, (Rabs_pos_eq m) by lra. apply (Rmult_le_reg_r m); [lra|].
  rewrite Rmult_assoc, Rinv_l by lra. pose proof (Rabs_pos (excess (shifted s r l) f u)). nra.
Qed.

(* Sharp cells: tokens whose scores stay G below another one's on an interval count for at most e^-G each. *)
Definition behind (best t : token) (u : Q) : Q := ((slope t - slope best) * u + (offset t - offset best))%Q.
Definition loud (lo hi G : Q) (best t : token) : bool :=
  negb (Qle_bool (behind best t lo) (- G) && Qle_bool (behind best t hi) (- G)).
Lemma behind_real best t q : Q2R (behind best t q) = score_at t (Q2R q) - score_at best (Q2R q).
Proof. unfold behind, score_at. rewrite Q2R_plus, Q2R_mult, !Q2R_minus. ring. Qed.
Lemma quiet_below lo hi G best t u : loud lo hi G best t = false -> Q2R lo <= u <= Q2R hi ->
  score_at t u - score_at best u <= - Q2R G.
Proof.
  unfold loud. intros H U. apply negb_false_iff, andb_true_iff in H as [A B].
  apply Qle_bool_iff, Qle_Rle in A. apply Qle_bool_iff, Qle_Rle in B. rewrite Q2R_opp, behind_real in A, B. unfold score_at in *.
  destruct (Rle_or_lt (Q2R (slope best)) (Q2R (slope t))); nra.
Qed.
Lemma sharp lo hi G best l near V m f e u : filter (loud lo hi G best) l = near -> existsb (fun t => Qeq_bool (slope t) (slope best) && Qeq_bool (offset t) (offset best)) l
    && forallb (small V) l && (Z.of_nat (length l) <=? m)%Z = true ->
  Q2R lo <= u <= Q2R hi -> near <> [] -> (forall t, In t near -> Rabs (Q2R (held t) - f) <= e) ->
  Rabs (attend l u - f) <= e + IZR m * (2 * Q2R V + e) * exp (- Q2R G).
Proof.
  intros N C U Ne H. rewrite !andb_true_iff in C. destruct C as [[C1 C2] C3].
  apply existsb_exists in C1 as [b [Ib C1]]. apply andb_true_iff in C1 as [S1 S2].
  apply Qeq_bool_iff, Qeq_eqR in S1. apply Qeq_bool_iff, Qeq_eqR in S2.
  assert (Sb : score_at b u = score_at best u) by (unfold score_at; now rewrite S1, S2). clear S1 S2.
  assert (P : exp (score_at best u) <= den l u).
  { rewrite <- Sb. clear - Ib. unfold den. induction l as [|a l IH]; [destruct Ib|]. simpl. pose proof (exp_pos (score_at a u)).
    pose proof (den_nonneg l u) as D. unfold den in D. destruct Ib as [->|I]; [lra|]. specialize (IH I). lra. }
  pose proof (exp_pos (score_at best u)) as Pb.
  assert (Vt : forall t, In t l -> Rabs (Q2R (held t)) <= Q2R V).
  { intros t I. rewrite forallb_forall in C2. specialize (C2 t I). apply Qle_bool_iff, Qle_Rle in C2. now rewrite Qabs'_real in C2. }
  assert (E : 0 <= e /\ Rabs f <= Q2R V + e).
  { destruct near as [|t near]; [congruence|]. pose proof (H t (or_introl eq_refl)) as A.
    assert (I : In t l) by (apply (filter_In (loud lo hi G best)); rewrite N; now left). pose proof (Vt t I) as B.
    pose proof (Rabs_pos (Q2R (held t) - f)). split; [lra|]. replace f with (Q2R (held t) - (Q2R (held t) - f)) at 1 by ring.
    eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_Ropp. lra. }
  destruct E as [E0 Ef].
  assert (T : forall t, In t l -> Rabs (exp (score_at t u) * (Q2R (held t) - f)) <= exp (score_at t u) * e + exp (score_at best u) * ((2 * Q2R V + e) * exp (- Q2R G))).
  { intros t I. rewrite Rabs_mult, (Rabs_pos_eq (exp _)) by (left; apply exp_pos).
    pose proof (Rabs_pos (Q2R (held t))). pose proof (Vt t I). pose proof (exp_pos (- Q2R G)). pose proof (exp_pos (score_at t u)).
    destruct (loud lo hi G best t) eqn:L.
    - assert (A := H t ltac:(rewrite <- N; apply filter_In; auto)). assert (0 <= exp (score_at best u) * ((2 * Q2R V + e) * exp (- Q2R G))) by (repeat apply Rmult_le_pos; lra). nra.
    - pose proof (quiet_below _ _ _ _ _ _ L U) as Q. assert (exp (score_at t u) <= exp (score_at best u) * exp (- Q2R G)).
      { rewrite <- exp_plus. apply exp_le. lra. }
      assert (Rabs (Q2R (held t) - f) <= 2 * Q2R V + e). { eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_Ropp. lra. }
      pose proof (Rabs_pos (Q2R (held t) - f)). apply Rle_trans with (exp (score_at best u) * exp (- Q2R G) * (2 * Q2R V + e)); [apply Rmult_le_compat; lra|nra]. }
  set (r := exp (score_at best u) * ((2 * Q2R V + e) * exp (- Q2R G))) in *.
  assert (R0 : 0 <= r). { unfold r. pose proof (exp_pos (- Q2R G)). pose proof (Vt b Ib). pose proof (Rabs_pos (Q2R (held b))). repeat apply Rmult_le_pos; lra. }
  assert (S : Rabs (num l u - f * den l u) <= e * den l u + INR (length l) * r).
  { clear - T R0 E0. unfold num, den. induction l as [|a l IH]; [simpl; replace (0 - f * 0) with 0 by ring; rewrite Rabs_R0; lra|].
    specialize (IH (fun t I => T t (or_intror I))). specialize (T a (or_introl eq_refl)). change (length (a :: l)) with (S (length l)). rewrite S_INR.
    cbn [map sum]. match goal with |- Rabs (?x * ?v + ?n - f * (?x + ?d)) <= _ => replace (x * v + n - f * (x + d)) with (x * (v - f) + (n - f * d)) by ring end.
    eapply Rle_trans; [apply Rabs_triang|]. lra. }
  unfold attend. replace (num l u / den l u - f) with ((num l u - f * den l u) / den l u) by (field; lra).
  unfold Rdiv. rewrite Rabs_mult, Rabs_inv, (Rabs_pos_eq (den l u)) by lra. apply (Rmult_le_reg_r (den l u)); [lra|]. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
  eapply Rle_trans; [exact S|]. rewrite Rmult_plus_distr_r. apply Rplus_le_compat_l.
  assert (M : INR (length l) <= IZR m) by (apply Z.leb_le in C3; rewrite INR_IZR_INZ; now apply IZR_le).
  apply Rle_trans with (IZR m * r); [now apply Rmult_le_compat_r|]. unfold r.
  assert (Q0 : 0 <= (2 * Q2R V + e) * exp (- Q2R G)).
  { pose proof (exp_pos (- Q2R G)). pose proof (Vt b Ib). pose proof (Rabs_pos (Q2R (held b))). apply Rmult_le_pos; lra. }
  replace (IZR m * (exp (score_at best u) * ((2 * Q2R V + e) * exp (- Q2R G)))) with (IZR m * ((2 * Q2R V + e) * exp (- Q2R G)) * exp (score_at best u)) by ring.
  rewrite (Rmult_assoc (IZR m) (2 * Q2R V + e)). apply Rmult_le_compat_l; [|exact P].
  apply Rmult_le_pos; [pose proof (pos_INR (length l)); lra|exact Q0].
Qed.
Ltac sums tab f := cbv [den excess tab map sum score_at slope offset held fst snd f Q2R Qnum Qden].
